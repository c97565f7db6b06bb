"""A run on disk: every prompt, answer, source, build log, verdict and cost."""
