"""What sees a live model and writes a trace pack, and importers of other systems' files. It imports `packs` and what is above."""
