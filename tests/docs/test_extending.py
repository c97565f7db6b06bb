"""extending.md: its diffs apply to the files that there are, and what it names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tables import document
from walk import blocks, links, patched

from pytest_cgins import plugin

PACKAGE = Path(plugin.__file__).parent
TEXT = document("extending.md")
NEW = {
    "verify/probes/working_directory.py",
    "report/lines.py",
    "recording/importers/opcalls.py",
    "timing/devices/simulator.py",
}
"""Files that a reader writes."""


def test_diffs_apply() -> None:
    """Each hunk's lines are in its file once, and what comes of a Python file can be parsed."""
    changed: dict[str, str] = {}
    for block in blocks(TEXT):
        if block.language == "diff":
            source = changed.get(block.file) or (PACKAGE / block.file).read_text(encoding="utf-8")
            for hunk in block.text.split("@@\n"):
                source = patched(source, hunk)
            changed[block.file] = source
        elif block.language == "python":
            assert block.file in NEW
            changed[block.file] = block.text
    assert len(changed) > 10
    for name, source in changed.items():
        if name.endswith(".py"):
            ast.parse(source)


def test_files_exist() -> None:
    """Each file that is named is there, but for those that are written here."""
    for name in set(re.findall(r"`((?:[\w.]+/)+[\w.]*)`", TEXT)) - NEW - {"pytest_cgins/"}:
        assert any((folder / name).exists() for folder in (PACKAGE, PACKAGE.parent)), name


def test_links_lead_somewhere() -> None:
    """Each relative link is a file."""
    for link in links(TEXT):
        assert (PACKAGE / "docs" / link).exists(), link
