"""Kernel regression gating for pytest."""

__version__ = "0.1.0"
