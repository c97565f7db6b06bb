"""Recording op calls of real models and keeping them as trace packs."""
