"""The search for a faster kernel: one tree of candidates, one driver, several policies that say what to ask for next."""
