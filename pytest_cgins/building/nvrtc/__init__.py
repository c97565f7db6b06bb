"""NVRTC, the CUDA compiler as a library. Imports no other part of the package: it also runs in a process of its own."""
