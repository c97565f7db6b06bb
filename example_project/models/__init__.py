"""The models whose ops the kernels in this project replace."""
