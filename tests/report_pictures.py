"""`python -m tests.report_pictures REPORT.json`: screenshots of its HTML page for the README, in `.github/`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from browsers import DESKTOP, PHONE, chromium, view

from pytest_cgins.core import documents
from pytest_cgins.core.session_report import SessionReport
from pytest_cgins.report.html.page import render

FOLDER = Path(__file__).resolve().parents[1] / ".github"
PICTURES = (
    ("report-light.png", DESKTOP, "light", ""),
    ("report-dark.png", DESKTOP, "dark", "#cases-1"),
    ("report-phone.png", PHONE, "light", "#cases-1"),
)
"""Name, size, colours, and what is looked at."""


def main() -> None:
    """Draw them all."""
    report = documents.load(SessionReport, Path(sys.argv[1]).read_bytes())
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        path = Path(folder) / "report.html"
        path.write_text(render(report))
        for name, size, scheme, fragment in PICTURES:
            with view(browser, path, viewport=size, color_scheme=scheme, fragment=fragment) as page:
                page.screenshot(path=FOLDER / name)


if __name__ == "__main__":
    main()
