"""What is measured about a kernel beside its time: evidence for prompts, pull requests and people."""
