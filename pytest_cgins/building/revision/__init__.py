"""The base revision: its commit, its sources, its kernels beside those of the working tree."""
