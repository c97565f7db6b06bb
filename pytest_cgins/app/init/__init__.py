"""`cgins init`: a repository that has kernels becomes a project that gates them."""
