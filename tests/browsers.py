"""A real browser for tests of pages: Chromium as the system has it, by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PHONE = {"width": 360, "height": 740}
DESKTOP = {"width": 1280, "height": 900}
WAIT_MS = 10_000
_NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def chromium() -> Iterator[Browser]:
    """One that runs without a screen; where it is not installed, the test is skipped and says what is missing."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed: pip install playwright"
    )
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        pytest.skip("no Chromium on PATH: apt-get install chromium")
    # Chromium's own sandbox refuses to start as root, as containers run.
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def view(browser: Browser, file: Path, *, fragment: str = "", **options: Any) -> Iterator[Page]:
    """A page of a file; whatever it asks for besides, and whatever its console says, is an error at the end.

    Args:
        browser: of `chromium`.
        file: the page.
        fragment: of its address: `#cases-1`.
        options: of Playwright's contexts.
    """
    said: list[str] = []
    asked: list[str] = []
    context = browser.new_context(**{"viewport": DESKTOP, **options})
    try:
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("console", lambda one: said.append(f"{one.type}: {one.text}"))
        page.on("pageerror", lambda one: said.append(str(one)))
        page.on("dialog", lambda one: said.append(f"dialog: {one.message}"))
        page.on("request", lambda one: asked.append(one.url))
        address = file.as_uri()
        page.goto(address + fragment)
        yield page
        assert said == []
        # An icon that is in its own address is asked for as well.
        assert {one.partition("#")[0] for one in asked} <= {address, "data:,"}
    finally:
        context.close()


def shown_names(page: Page) -> list[str]:
    """First cells of the rows that can be seen."""
    names: list[str] = page.eval_on_selector_all(
        "tr[data-status]:not([hidden])", "rows => rows.map(row => row.cells[0].textContent)"
    )
    return names
