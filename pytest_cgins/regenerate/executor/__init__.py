"""Where candidates are built and judged: on this machine, or on the nodes of a Ray cluster."""
