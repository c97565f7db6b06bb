"""How soon a page of two thousand cases can be used."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browsers import chromium, view
from html_reports import many

from pytest_cgins.report.html.page import render

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser
MOST_GROWTH = 2.6
"""Of the time for twice as many cases. Machines differ: on an idle one with 2 cores 2,000 cases take under 2 s."""
RUNS = 3
"""The least counts: what the machine does besides makes it longer only."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all runs."""
    with chromium() as found:
        yield found


@pytest.mark.exam
def test_twice_as_many_cases_take_hardly_more_than_twice_as_long(browser: Browser, tmp_path: Path) -> None:
    """From the address to a table that was filtered, sorted and of which a case was opened."""
    seconds = {}
    for count in (1000, 2000):
        path = tmp_path / f"{count}.html"
        path.write_text(render(many(count)))
        seconds[count] = min(_seconds(browser, path, count) for _ in range(RUNS))
    assert seconds[2000] < MOST_GROWTH * seconds[1000], seconds


def _seconds(browser: Browser, path: Path, count: int) -> float:
    started = time.perf_counter()
    with view(browser, path) as page:
        page.locator("#cases-kernel").select_option("softmax")
        page.locator(
            "[role=status]", has_text=re.compile(rf"^the first 200 shown of \d{{3}} of {count:,} that fit$")
        ).wait_for()
        page.get_by_role("button", name="kernel", exact=True).click()
        page.locator("th[aria-sort=ascending]").wait_for()
        page.locator("tr[data-status]:not([hidden]) a").first.click()
        page.locator("details[open] svg.plot").first.wait_for()
        return time.perf_counter() - started
