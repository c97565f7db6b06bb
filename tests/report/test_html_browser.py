"""The HTML page in a real browser: sorting, filters, plots, accessibility, and without scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browsers import DESKTOP, PHONE, chromium, shown_names, view
from html_reports import builds, history_of, many, report_of

from pytest_cgins.core.session_report import SessionReport
from pytest_cgins.core.verdict import Status
from pytest_cgins.report.html.page import render

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def report() -> SessionReport:
    """Of sixty cases."""
    return many(60)


@pytest.fixture(scope="module")
def file(report: SessionReport, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its page, with a history."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(report, trends=history_of(report)))
    return path


@pytest.fixture
def page(browser: Browser, file: Path) -> Iterator[Page]:
    """The page on a desktop, light."""
    with view(browser, file) as opened:
        yield opened


def violations(page: Page) -> list[str]:
    """What axe finds, in words."""
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
    )
    found: dict[str, Any] = axe.Axe().run(page).response
    return [f"{one['id']}: {node['html'][:200]}" for one in found["violations"] for node in one["nodes"]]


def heading(page: Page, name: str) -> Any:
    """A heading of the table of cases."""
    return page.locator("th[scope=col]").filter(has=page.get_by_role("button", name=name, exact=True))


@pytest.mark.exam
def test_a_click_on_a_heading_sorts(page: Page, report: SessionReport) -> None:
    """Up, then down; aria-sort says so; cases that were not timed stay last."""
    timed = {
        one.case.name: one.measurement.kernel.median_ns_per_call
        for one in report.evaluations
        if one.measurement is not None
    }
    column = heading(page, "kernel")
    column.get_by_role("button").click()
    assert column.get_attribute("aria-sort") == "ascending"
    names = shown_names(page)
    assert names[: len(timed)] == sorted(timed, key=timed.__getitem__)
    column.get_by_role("button").click()
    assert column.get_attribute("aria-sort") == "descending"
    assert shown_names(page)[: len(timed)] == sorted(timed, key=timed.__getitem__, reverse=True)
    assert set(shown_names(page)[len(timed) :]) == set(names[len(timed) :])
    heading(page, "case").get_by_role("button").click()
    assert column.get_attribute("aria-sort") is None
    assert len(shown_names(page)) == len(report.evaluations)


@pytest.mark.exam
def test_a_heading_is_pressed_by_the_keyboard(page: Page, report: SessionReport) -> None:
    """And the focus stays where it was, where it can be seen."""
    button = heading(page, "status").get_by_role("button")
    button.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert heading(page, "status").get_attribute("aria-sort") == "descending"
    assert page.evaluate("document.activeElement.textContent") == "status"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    (best,) = {one.verdict.status for one in report.evaluations if one.case.name == shown_names(page)[0]}
    assert best is Status.FASTER


@pytest.mark.exam
def test_filters_work_together(page: Page, report: SessionReport) -> None:
    """Text, status, device and kernel; a live region says how many are shown, all at once."""
    cases = report.evaluations

    def expect(chosen: list[str]) -> None:
        page.locator("[role=status]", has_text=re.compile(f"^{len(chosen)} of 60 shown$")).wait_for()
        assert sorted(shown_names(page)) == sorted(chosen)

    page.locator("#cases-kernel").select_option("softmax")
    expect([one.case.name for one in cases if one.case.kernel == "softmax"])
    page.locator("#cases-device").select_option("cpu")
    expect([one.case.name for one in cases if (one.case.kernel, one.case.device) == ("softmax", "cpu")])
    page.get_by_role("button", name="Reset").click()
    expect([one.case.name for one in cases])
    page.locator("#cases-status").select_option("SLOWER")
    expect([one.case.name for one in cases if one.verdict.status is Status.SLOWER])
    page.locator("#cases-status").select_option("bad")
    expect([one.case.name for one in cases if one.verdict.status.outcome == "fail"])
    page.get_by_role("button", name="Reset").click()
    page.locator("#cases-text").fill("SIGSEGV  cpp")
    crashed = [one for one in cases if one.verdict.status is Status.RUNTIME_ERROR]
    assert crashed
    expect([one.case.name for one in crashed if one.case.implementation == "cpp"])
    page.locator("#cases-text").fill("no such kernel")
    expect([])


@pytest.mark.exam
def test_a_name_leads_to_its_details(page: Page, report: SessionReport) -> None:
    """They open, have the focus, and show their plots; a link leads back."""
    slower = [one for one in report.evaluations if one.verdict.status is Status.SLOWER]
    name = next(one.case.name for one in slower if one.case.device == "cuda:0")
    assert page.locator(".details details").count() == 0
    link = page.locator("tr[data-status]").get_by_role("link", name=name, exact=True)
    link.focus()
    page.keyboard.press("Enter")
    opened = page.locator("details[open]")
    opened.locator("svg.plot").first.wait_for()
    assert opened.count() == 1
    assert opened.locator("svg.plot").count() == 3
    assert page.evaluate("!!document.activeElement.closest('details[open]')")
    box = opened.locator("svg.plot").first.bounding_box()
    assert box is not None
    assert min(box["width"], box["height"]) > 100
    assert opened.locator("path.dots").first.bounding_box() is not None
    opened.get_by_role("link", name="Back to the table of cases").click()
    assert page.evaluate("document.activeElement.id") == "cases"


@pytest.mark.exam
def test_an_address_with_a_case_opens_it(browser: Browser, file: Path) -> None:
    """As somebody sends it to somebody else."""
    with view(browser, file, fragment="#cases-3") as page:
        page.locator("details[open] >> text=What was tested").wait_for()
        assert page.locator("details[open] #cases-3").count() == 1


@pytest.mark.exam
def test_rooflines_are_drawn(page: Page, report: SessionReport) -> None:
    """With a point for each case that was timed."""
    timed = [one for one in report.evaluations if one.measurement is not None]
    assert page.locator("section[aria-labelledby=roofline] circle").count() == len(timed)


@pytest.mark.exam
def test_the_skip_link_comes_first(page: Page) -> None:
    """It is seen when it has the focus, and leads to the table."""
    page.keyboard.press("Tab")
    link = page.get_by_role("link", name="Skip to the table")
    assert page.evaluate("document.activeElement.className") == "skip"
    box = link.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "cases"


@pytest.mark.exam
def test_of_many_cases_the_first_are_shown(browser: Browser, tmp_path: Path) -> None:
    """In the order of the moment, over all of them; a button shows the rest."""
    many_cases = many(300)
    path = tmp_path / "many.html"
    path.write_text(render(many_cases))
    told = [one.measurement.kernel.median_ns_per_call for one in many_cases.evaluations if one.measurement]
    with view(browser, path) as page:
        assert page.locator("[role=status]").text_content() == "the first 200 shown of 300 of 300 that fit"
        assert len(shown_names(page)) == 200
        heading(page, "kernel").get_by_role("button").click()
        heading(page, "kernel").get_by_role("button").click()
        slowest = page.locator("tr[data-status]:not([hidden])").first.locator("td[data-n]").nth(5)
        assert float(slowest.get_attribute("data-n") or "nan") == max(told)
        page.get_by_role("button", name="Show all").click()
        assert page.locator("[role=status]").text_content() == "300 of 300 shown"
        assert len(shown_names(page)) == 300
        assert not page.locator(".more").is_visible()


@pytest.mark.exam
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_axe_finds_nothing(browser: Browser, file: Path, scheme: str, size: dict[str, int]) -> None:
    """In light and dark, wide and narrow, with details open, sorted and filtered."""
    with view(browser, file, color_scheme=scheme, viewport=size) as page:
        for place in (1, 5, 10, 30):
            page.evaluate(f"location.hash = 'cases-{place}'")
            page.locator(f"details[open] #cases-{place}").wait_for(state="attached")
        assert page.locator("details[open] svg.plot").count() > 2
        heading(page, "kernel").get_by_role("button").click()
        page.locator("#cases-text").fill("layer_norm")
        page.locator("[role=status]", has_text=re.compile(r"^1?\d of 60 shown$")).wait_for()
        assert violations(page) == []


@pytest.mark.exam
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_builds_are_accessible_too(browser: Browser, tmp_path: Path, scheme: str) -> None:
    """A page of --cgins-compile-only, and what a run without cases says."""
    path = tmp_path / "builds.html"
    report = replace(
        report_of(compilations=builds()), missing=("cgins.yaml::a/b",), stale=("the sources of a",)
    )
    path.write_text(render(report))
    with view(browser, path, color_scheme=scheme) as page:
        for place in (1, 2, 3):
            page.evaluate(f"location.hash = 'builds-{place}'")
            page.locator(f"details[open] #builds-{place}").wait_for(state="attached")
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        assert page.locator("h3", has_text="Functions at the base revision").count() == 2
        assert violations(page) == []


@pytest.mark.exam
def test_dark_is_dark(browser: Browser, file: Path) -> None:
    """By what the reader's system prefers."""
    backs = []
    for scheme in ("light", "dark"):
        with view(browser, file, color_scheme=scheme) as page:
            backs.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert backs == ["rgb(255, 255, 255)", "rgb(20, 23, 26)"]


@pytest.mark.exam
def test_a_phone_scrolls_the_table_and_not_the_page(browser: Browser, file: Path) -> None:
    """Details are as wide as the screen, too."""
    with view(browser, file, viewport=PHONE, fragment="#cases-1") as page:
        page.locator("details[open] >> text=What was tested").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        table = page.locator("[data-list] .scroll").first
        assert table.evaluate("one => one.scrollWidth > one.clientWidth")


@pytest.mark.exam
def test_nothing_moves_for_whoever_asks_for_it(browser: Browser, file: Path) -> None:
    """`prefers-reduced-motion`: no transition, animation or smooth scrolling."""
    moving = """() => [...document.querySelectorAll('*')].filter(one => {
        const style = getComputedStyle(one);
        return style.transitionDuration !== '0s' || style.animationName !== 'none' || style.scrollBehavior !== 'auto';
    }).length"""
    with view(browser, file, reduced_motion="reduce") as page:
        assert page.evaluate(moving) == 0
    with view(browser, file, reduced_motion="no-preference") as page:
        assert page.evaluate(moving) > 0


@pytest.mark.exam
def test_without_scripts_all_is_there(browser: Browser, file: Path, report: SessionReport) -> None:
    """Rows, details and plots; no filter that would do nothing; a name opens its details."""
    with view(browser, file, java_script_enabled=False) as page:
        assert page.locator("tr[data-status]").count() == len(report.evaluations)
        assert not page.locator("form.filters").is_visible()
        assert page.locator("th button").count() == 0
        page.locator("tr[data-status] a").first.click()
        opened = page.locator("details[open]")
        opened.wait_for()
        assert opened.count() == 1
        last = opened.locator("h3").last
        assert last.is_visible()
        assert last.text_content() == "What was tested"


@pytest.mark.exam
def test_hostile_texts_do_nothing(browser: Browser, tmp_path: Path) -> None:
    """Unfolded, too: no script runs, nothing is asked for, and the text reads as it was written."""
    text = "</noscript></template></script><img src=x onerror=alert(1)><svg onload=alert(2)>&lt;"
    one = next(one for one in many(8).evaluations if one.verdict.status is Status.INCORRECT)
    hostile = replace(
        one,
        case=replace(one.case, kernel=text, op=text),
        verdict=replace(one.verdict, message=text),
        output=text,
    )
    path = tmp_path / "hostile.html"
    path.write_text(render(report_of(hostile)))
    with view(browser, path, fragment="#cases-1") as page:
        page.locator("details[open] >> text=What was tested").wait_for()
        assert page.locator("img, template, svg[onload]").count() == 0
        assert text in (page.locator("details[open] pre").last.text_content() or "")
