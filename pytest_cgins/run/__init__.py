"""Worker processes, their protocol, the services that they serve, sandbox and sanitizers. It imports `verify` and what is above."""
