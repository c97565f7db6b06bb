"""Prints a prompt of the example project: python -m tests.regenerate.prompts.show KERNEL IMPLEMENTATION [GOAL]."""

from __future__ import annotations

import sys

from pytest_cgins.regenerate.prompts.assembly import generator, helper
from tests.regenerate.prompts.example import context_of

if __name__ == "__main__":
    goal = sys.argv[3] if len(sys.argv) > 3 else "repair"
    made = context_of(sys.argv[1], sys.argv[2], "repair" if goal == "advise" else goal)
    for message in helper(made) if goal == "advise" else generator(made):
        print(f"<<{message.role}>>\n{message.text}\n")
