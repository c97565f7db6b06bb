"""Finding, checking, building and loading kernels."""
