"""Built kernels as something to call. Most of it runs in worker processes only."""
