"""Models at the sizes that people run, to be recorded and gated on a GPU."""
