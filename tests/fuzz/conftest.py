"""Lets the fuzz tests import each other's helpers as `tests.fuzz`, however pytest was started."""

import sys
from pathlib import Path

ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)
