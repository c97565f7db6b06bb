"""How long a kernel takes: timers, blocks, the sequential test, clocks, what devices reach, locks on devices. It imports `building` and what is above."""
