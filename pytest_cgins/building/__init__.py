"""From a kernel's source to a library that a worker can load. It imports `packs` and what is above."""
