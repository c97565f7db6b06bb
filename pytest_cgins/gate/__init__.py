"""One case in, one evaluation out: cases, decisions, calibration, the compile gate, missing cases. It imports `doctor` and what is above."""
