"""One module a kind of kernel: how it is compiled, and what decides the result."""
