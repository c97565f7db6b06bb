"""Defaults of pytest's options that others need too. Imports nothing: the plugin imports it at every start."""

from __future__ import annotations

TIMEOUT_S = 60.0
"""Default of `--cgins-timeout`, in seconds."""
