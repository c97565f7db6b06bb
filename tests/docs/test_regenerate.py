"""regenerate.md and SKILL.md against the code."""

from __future__ import annotations

from pathlib import Path

from tables import document

from pytest_cgins.app import cli
from pytest_cgins.regenerate.run_setup import EXIT_WAITING

PACKAGE = Path(cli.__file__).parents[1]
GUIDE = document("regenerate.md")
SKILL = (PACKAGE / "regenerate" / "SKILL.md").read_text(encoding="utf-8")


def test_the_exit_code_is_told() -> None:
    """The number is the program's."""
    assert f"exit code {EXIT_WAITING}" in GUIDE
    assert f"exit code {EXIT_WAITING}" in SKILL
