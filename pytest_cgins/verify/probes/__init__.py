"""What a wrong kernel might do to pass, and how it is seen: a module a probe."""
