"""Is the kernel's answer right: reference, tolerance, comparison, inputs, semantics and probes. It imports `timing` and what is above."""
