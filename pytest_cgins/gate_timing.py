"""From timings to a verdict."""
