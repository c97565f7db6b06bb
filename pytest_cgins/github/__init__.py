"""A proposal as a pull request: the only part that sees a token with write access; it never runs a kernel."""
