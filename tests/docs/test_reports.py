"""reports.md: its limits are ours."""

from __future__ import annotations

import re
from pathlib import Path

from tables import document

from pytest_cgins.report.html import page
from pytest_cgins.report.html.markup import TEXT_LENGTH

TEXT = " ".join(document("reports.md").split())


def test_limits_are_those_of_the_page() -> None:
    """Rows that are shown at first, in the script as in the style sheet, and the length of a text."""
    folder = Path(page.__file__).parent
    rows = re.search(r"MOST_ROWS = (\d+);", (folder / "report.js").read_text())
    assert rows is not None
    assert f"The first {rows[1]} are shown" in TEXT
    assert f"nth-child(n + {int(rows[1]) + 1})" in (folder / "style.css").read_text()
    assert f"longer than {TEXT_LENGTH:,} characters" in TEXT
