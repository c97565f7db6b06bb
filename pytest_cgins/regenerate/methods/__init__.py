"""Optimisation methods as data: what they are, which are offered, whether machine code shows them, and what became of them.

data/*.yaml → registry → select → (a prompt offers, a model chooses) → validator → … → sass_signature → classes
                          axis_budget, near_peak: how many an axis, and when to stop
"""
