"""`cgins doctor`: what this machine has of what the gate, recording and regeneration need. It imports `run` and what is above."""
