"""Trace packs from the files of other benchmark systems, and back: `cgins import`, `cgins export`."""
