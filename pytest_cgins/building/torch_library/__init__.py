"""Kernels as a torch library of their own: what `cgins export` writes, and the parts that it copies."""
