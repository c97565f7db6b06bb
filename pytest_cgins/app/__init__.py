"""What users start: pytest's session, the command line, whole models. It imports every other room; only `plugin` imports it."""
