"""What probes share: how a process is observed while a kernel runs, and how a kernel is run again."""
