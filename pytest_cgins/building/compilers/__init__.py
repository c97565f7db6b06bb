"""Compilers: which there are, how many run at once, how they end, and what they print."""
