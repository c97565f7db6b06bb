"""What a session found, for people and for programs."""
