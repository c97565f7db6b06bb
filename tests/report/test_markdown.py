"""The session as markdown for a job summary."""

from __future__ import annotations

import html.parser
import re
import shlex
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from reports import CPU, report_of

from pytest_cgins.core.session_report import Environment, Evaluation
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.report import escape, failure, markdown
from pytest_cgins.report.summary import counts

Make = Callable[..., Evaluation]
TAGS = {"h2", "h3", "p", "br", "code", "pre", "table", "tr", "th", "td", "details", "summary", "strong"}
HOSTILE = (
    "<script>alert(1)</script>",
    "</code></td></tr></table>\n\n# forged heading\n\n[x](javascript:alert(1))",
    "![](http://example.invalid/pixel.png) @everyone #1 https://example.invalid",
    "a|b \\| c \\\\| `` ` ``` d",
    "::error::forged\n::add-mask::x\n##[set-env name=A]b",
    "\u202egnp.exe\u2066 \x1b[31mred\x00\r\n\u2028line",
    "<!-- cgins:pr:x --> ]]> <![CDATA[ <?php ?> &lt; &#10;",
    "$\\color{red}{x}$ :smile: ~~gone~~ **bold**",
)


class Elements(html.parser.HTMLParser):
    """Tags, attributes and texts of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.others: list[str] = []
        self.codes: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag in ("code", "pre"):
            self._open.append(tag)
            self.codes.append("")

    def handle_endtag(self, tag: str) -> None:
        self.tags.add(tag)
        if self._open and tag == self._open[-1]:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open:
            self.codes[-1] += data

    def handle_comment(self, data: str) -> None:
        self.others.append(data)

    def handle_decl(self, decl: str) -> None:
        self.others.append(decl)

    def handle_pi(self, data: str) -> None:
        self.others.append(data)

    def unknown_decl(self, data: str) -> None:
        self.others.append(data)


def page_html(text: str) -> str:
    """The page as a browser gets it."""
    return MarkdownIt("commonmark", {"html": True}).render(text)


def parsed(text: str) -> Elements:
    """CommonMark first, then HTML."""
    elements = Elements()
    elements.feed(page_html(text))
    elements.close()
    return elements


def test_totals_failures_and_times_are_there(make_evaluation: Make) -> None:
    """The heading has the totals; a failure its status, reason and message; a timed case both times."""
    wrong = make_evaluation(
        Status.INCORRECT,
        reason=Reason.GOLD_MISMATCH,
        message="it is wrong",
        share=3.0,
        implementation="bad",
        times_ns=None,
    )
    skipped = make_evaluation(Status.SKIPPED, reason=Reason.DEVICE_ABSENT, message="no GPU here")
    text = markdown.render(report_of(make_evaluation(), wrong, skipped))
    assert text.startswith("## cgins: 1 failed, 1 skipped, 1 passed\n")
    codes = parsed(text).codes
    assert "INCORRECT (gold-mismatch): it is wrong" in codes
    assert "device-absent" not in text
    assert "no GPU here" in codes
    assert "<td>1 us</td><td>2 us</td><td>2x</td>" in text
    assert "pytest --cgins --cgins-seed=7 cgins.yaml::scale/cpu-bad/tiny/f32-2x3-0001" in codes
    (full,) = (found for found in codes if "reference rule on fresh inputs" in found)
    assert "\nagain   pytest --cgins" in full


def test_clean_report_has_no_empty_sections(make_evaluation: Make) -> None:
    """Sections without rows are left out."""
    text = markdown.render(report_of(make_evaluation(), exit_status=0))
    assert re.findall("^##.*$", text, re.MULTILINE) == [
        "## cgins: 1 passed",
        "### Kernels",
        "### Times",
    ]
    assert "<details>" not in text


def test_failures_come_worst_first_and_slow_kernels_first(make_evaluation: Make) -> None:
    """A wrong answer precedes a build error; the slowest kernel leads the times."""
    build = make_evaluation(Status.BUILD_ERROR, signature="a", reason=Reason.COMPILER, times_ns=None)
    wrong = make_evaluation(Status.INCORRECT, signature="b", reason=Reason.SHAPE, times_ns=None)
    fast = make_evaluation(signature="c", times_ns=(1.0, 8.0))
    slow = make_evaluation(signature="d", times_ns=(8.0, 1.0))
    text = markdown.render(report_of(build, wrong, fast, slow))
    assert text.index("INCORRECT (") < text.index("BUILD_ERROR (")
    times = text[text.index("### Times") :]
    assert times.index("tiny/d") < times.index("tiny/c")


def test_strict_makes_weak_a_failure(make_evaluation: Make) -> None:
    """A weak case is listed with what would pass too; under strict it is a failure and its line says so."""
    weak = make_evaluation(Status.WEAK, reason=Reason.NO_POWER, accepted=("zeros",))
    lax, strict = (markdown.render(report_of(weak, strict=flag)) for flag in (False, True))
    assert lax.startswith("## cgins: 1 passed (1 weak)\n")
    assert "<td>zeros</td>" in lax
    assert "--cgins-strict" not in lax
    assert strict.startswith("## cgins: 1 failed, 0 passed (1 weak)\n")
    assert "--cgins-strict" in strict


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_stay_texts(make_evaluation: Make, text: str) -> None:
    """Whatever a name, message, output or device is called, the page has our elements and no attributes."""
    evaluation = make_evaluation(
        Status.RUNTIME_ERROR,
        kernel=text,
        implementation=text,
        signature=text,
        message=f"{text}\n\n{text}",
        output=text,
        reason=Reason.RAISED,
    )
    page = markdown.render(report_of(evaluation, environments=[replace(CPU, device_name=text)]))
    assert_harmless(page)


def assert_harmless(page: str) -> None:
    found = parsed(page)
    assert found.tags <= TAGS
    assert found.attributes == []
    assert found.others == []
    assert "<strong>bold" not in page_html(page)
    assert "forged" not in re.sub(r"<(code|pre)>.*?</\1>", "", page, flags=re.DOTALL)
    for line in page.splitlines():
        assert re.match(r"\s*::", line) is None
    assert "##[" not in page
    assert re.fullmatch(r"[^\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]*", page)


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("<>&|`\\\n:#[]*_"), max_size=60))
def test_escaped_text_comes_back_from_the_browser(text: str) -> None:
    """In a table of an HTML block, what a reader sees of printable text is that text, and nothing else."""
    page = f"<table>\n<tr><td>{escape.code(text, length=99)}</td><td>{escape.block(text, length=99)}</td></tr>\n</table>\n"
    found = parsed(page)
    assert found.tags == {"table", "tr", "td", "code", "pre"}
    line, lines = found.codes
    if text.isprintable():
        assert line == " ".join(text.split())
        assert lines == text
    assert_harmless(page)


@pytest.mark.exam
@pytest.mark.parametrize("limit", [markdown.LEAST_LIMIT_NBYTES, 60_000, markdown.STEP_SUMMARY_LIMIT_NBYTES])
def test_size_limit_holds(make_evaluation: Make, limit: int) -> None:
    """A thousand failures with long messages in three-byte letters fit; the rest is counted."""
    many = [
        make_evaluation(
            Status.INCORRECT,
            reason=Reason.SHAPE,
            kernel=f"kernel{number}",
            message="\u4e16" * 5000 + "\n" + "\u4e16" * 50_000,
        )
        for number in range(1000)
    ]
    text = markdown.render(report_of(*many), limit_nbytes=limit)
    assert limit / 2 < len(text.encode()) <= limit
    assert re.search(r"<p>… \d+ more in the JSON report.</p>", text)
    assert text.count("<table>") == text.count("</table>")
    shown = len(re.findall(r"<td><code>INCORRECT", text))
    assert shown >= 4
    _, _, failures = text.partition("### Failures")
    assert int(re.findall(r"… (\d+) more", failures)[0]) == 1000 - shown


def test_too_small_a_limit_is_refused(make_evaluation: Make) -> None:
    """A limit without room for the heading raises, and says the least."""
    with pytest.raises(ValueError, match="16384"):
        markdown.render(report_of(make_evaluation()), limit_nbytes=100)


def test_many_long_environments_fit_the_least_limit(make_evaluation: Make) -> None:
    """The heading is bounded: what it shows of hostile environments is cut."""
    environment = Environment(
        device="\x00" * 9999, device_name="\x00" * 9999, python="\x00" * 9999, torch="1"
    )
    report = replace(report_of(make_evaluation()), environments=(environment,) * 50)
    text = markdown.render(report, limit_nbytes=markdown.LEAST_LIMIT_NBYTES)
    assert len(text.encode()) <= markdown.LEAST_LIMIT_NBYTES


@pytest.mark.parametrize(
    ("config", "shown"),
    [
        ("", "cgins.yaml"),
        ("my project/cgins.yaml", "my project/cgins.yaml"),
        ("-p evil/cgins.yaml", "./-p evil/cgins.yaml"),
    ],
)
def test_a_case_is_named_by_its_file(make_evaluation: Make, config: str, shown: str) -> None:
    """The command ends in the case's node id, which is one word and no option whatever it is called."""
    evaluation = replace(make_evaluation(kernel="a b; rm -rf ~"), config=config)
    words = shlex.split(failure.command(evaluation, report_of(evaluation, strict=True)))
    assert words == [
        "pytest",
        "--cgins",
        "--cgins-seed=7",
        "--cgins-strict",
        f"{shown}::{evaluation.case.name}",
    ]


def test_counts_add_up(make_evaluation: Make) -> None:
    """Every case is in one of four counts, and a weak one besides; `lines` is for scripts."""
    evaluations = [make_evaluation(status, signature=status.value) for status in Status]
    lax, strict = (counts(report_of(*evaluations, strict=flag)) for flag in (False, True))
    for found in (lax, strict):
        assert found.total == found.passed + found.failed + found.errors + found.skipped == len(Status)
        assert found.weak == 1
    assert strict.failed == lax.failed + 1
    assert "errors=2\nskipped=1\nweak=1\n" in found.lines()
