"""Files that tests and benchmarks name beside themselves are there, also where they run on a GPU alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

NAMED = re.compile(
    r'^[A-Z_]+\b.*Path\(__file__\)(?:\.resolve\(\))?\.(?:parents\[(\d+)\]|(parent)) / "([^"{}]+)"',
    re.MULTILINE,
)
TESTS = Path(__file__).parent


@pytest.mark.parametrize(
    "folder", sorted({path.parent for path in TESTS.rglob("*.py")}), ids=lambda path: path.name
)
def test_named_files_exist(folder: Path) -> None:
    """A folder that was moved leaves no name behind."""
    missing = [
        f"{file.relative_to(TESTS)}: {name}"
        for file in folder.glob("*.py")
        for depth, _, name in NAMED.findall(file.read_text(encoding="utf-8"))
        if not (file.parents[int(depth or 0)] / name).exists()
    ]
    assert missing == []
