"""Traces on disk: their format, their store, the inputs that recipes make again, and replay. It imports `core` and `config`."""
