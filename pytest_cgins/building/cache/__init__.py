"""Built kernels on disk, found again by content."""
