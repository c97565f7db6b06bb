"""Scripts that record the trace packs of this project."""
