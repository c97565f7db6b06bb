"""What still waits for its room."""
