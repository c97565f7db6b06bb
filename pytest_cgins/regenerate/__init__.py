"""A kernel that fails or regressed is given to a language model, and what comes back to the same gate. It imports `report` and what is above."""
