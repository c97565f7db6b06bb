"""`benchmarks/house.py`: what counts as code, and the committed table."""

from __future__ import annotations

import json
from pathlib import Path

from tests.benchmarks import house

RESULTS = Path(house.__file__).parent / "results"
SOURCE = '''"""A docstring
of two lines."""

# a comment
class Kernel:
    """A docstring."""

    name = """text

    that is code"""
    """A docstring of an attribute."""


def run(): "A docstring beside code."
'''


def test_blanks_comments_and_docstrings_are_no_code() -> None:
    """A line with code and a docstring counts, and so does each line of text in any other string."""
    assert house.lines_of_code(SOURCE) == 4
    assert house.statements(SOURCE) == 3


def test_the_table_is_that_of_the_data() -> None:
    """The markdown beside the JSON is made from it."""
    figures = json.loads((RESULTS / "house-before.json").read_text())
    assert house.table(figures) == (RESULTS / "house-before.md").read_text()
