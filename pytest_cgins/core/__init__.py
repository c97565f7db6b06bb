"""What every room may use: so far, how a file is replaced whole. It imports no other room."""
