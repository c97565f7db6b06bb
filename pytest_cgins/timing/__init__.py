"""Timers and the numbers made from their samples."""
