"""Benchmark files of GinS as projects, and runs in its layout."""
