"""Worker processes, their protocol, and the services they serve."""
