"""report.md: what it tells, and that no text in it can do more than be read."""

from __future__ import annotations

import html.parser
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from timings import blocks, compared, measured

from pytest_cgins.core.measurement import Roofline
from pytest_cgins.core.verdict import Probe, Reason, Status
from pytest_cgins.regenerate import proposal
from pytest_cgins.regenerate.proposal import report as proposal_report
from pytest_cgins.regenerate.proposal import text as proposal_text
from tests.evaluations import make_evaluation
from tests.regenerate import proposals
from tests.regenerate.proposals import NEW, OLD, PATH

HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "</code></td></tr></table>\n\n# forged\n\n[x](javascript:alert(1)) ![](http://example.invalid/p.png)",
    "@everyone closes #1, GH-2, owner/name#3 https://example.invalid",
    "a|b \\| `` ` ``` ```` ~~~ d",
    "```\n\n````\n</details>\n@everyone #1\n`````",
    "\r```\r@everyone\r",
    "::error::forged\n ::add-mask::x\n##[set-env name=A]b",
    "\u202egnp.exe\u2066 \x1b[31mred\x00\u2028line",
    "<!-- cgins:pr:x --> ]]> <![CDATA[ <?php ?> &lt; &#10;",
)
TAGS = {"h2", "h3", "p", "code", "pre", "table", "tr", "th", "td", "ul", "li"}


class Page(html.parser.HTMLParser):
    """Tags, attributes, and the texts outside of code."""

    def __init__(self, markdown: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.plain = ""
        self.code = ""
        self.others: list[str] = []
        self._depth = 0
        self.feed(MarkdownIt("commonmark", {"html": True}).render(markdown))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        self._depth += tag in ("code", "pre")

    def handle_endtag(self, tag: str) -> None:
        self.tags.add(tag)
        self._depth -= tag in ("code", "pre")

    def handle_data(self, data: str) -> None:
        if self._depth:
            self.code += data
        else:
            self.plain += data

    def handle_comment(self, data: str) -> None:
        self.others.append(data)

    handle_decl = handle_pi = unknown_decl = handle_comment


def harmless(text: str) -> None:
    page = Page(text)
    assert page.tags <= TAGS
    assert set(page.attributes) <= {("class", "language-diff")}
    assert page.others == []
    assert "@" not in page.plain
    assert "#" not in page.plain
    assert "http" not in page.plain
    assert "forged" not in page.plain
    assert len(text) <= proposal_report.LIMIT
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\u2028]", text)
    assert not any(line.lstrip().startswith("::") or "##[" in line for line in text.split("\n"))


def report(folder: Path, **changes: Any) -> str:
    proposals.write(folder, **changes)
    return (folder / "report.md").read_text()


def hostile(text: str) -> dict[str, Any]:
    """Everything that may come from a kernel, a compiler, a model or a repository says the text."""
    bad = make_evaluation(Status.BUILD_ERROR, reason=Reason.COMPILER, message=text, signature=text)
    return {
        "base": {PATH: f"{text}\n{OLD}"},
        "new": {PATH: f"{text}\n{NEW}{text}\n".replace("\0", "")},
        "before": [bad],
        "after": proposals.accepted(make_evaluation(signature=text), make_evaluation()),
        "attempts": [proposals.attempt(1, "build-error", text), proposals.attempt(2, "accepted")],
        "answers": [proposals.answer(text)],
        "provider": text,
        "sandbox": False,
        "notes": [text],
        "search": [text, f"round 1: {text}"],
        "target": proposals.target(op=text),
    }


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_only_texts(tmp_path: Path, text: str) -> None:
    """No tag, link, mention, reference, command or control character comes out of any of them."""
    harmless(report(tmp_path / "p", **hostile(text)))
    said = proposal_text.text(proposal.read(tmp_path / "p"), colour=False)
    assert all(character.isprintable() or character == "\n" for character in said)
    assert not any(line.lstrip().startswith("::") or "##[" in line for line in said.split("\n"))


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from([*HOSTILE, "`", "~~~", "\n", " ", "\t", "@a", "#1", "<b>", "\r", "-", "x"])))
def test_any_patch_stays_in_its_fence(parts: list[str]) -> None:
    """Whatever the lines of a patch are, they are shown in one code block."""
    lines = "".join(parts).split("\n")
    text = proposal_report.fenced("".join(f"+{line}\n" for line in lines).encode())
    harmless(text)
    assert Page(text).plain.strip() == ""


def test_what_a_search_found_is_told_in_short(tmp_path: Path) -> None:
    """A line each, as many as there is room for; the others are counted, and a repair has none."""
    assert "What the search found" not in report(tmp_path / "a")
    lines = [f"round {number}: best" for number in range(1, proposal_report.SEARCH_LINES + 4)]
    text = report(tmp_path / "b", search=["headline: 2x", *lines])
    page = Page(text)
    assert "What the search found" in page.plain
    assert "headline: 2x" in page.code
    assert lines[-5] in page.code
    assert lines[-4] not in page.code
    assert "… 4 more" in page.plain
    contents = proposal.read(tmp_path / "b")
    assert contents.proposal.search[-1] == lines[-1]
    assert f"\n{lines[-1]}\n" in proposal_text.text(contents, colour=False)


def test_what_is_told(tmp_path: Path) -> None:
    """What was wrong, before and after, the patch, attempts, cost, models, sandbox, command."""
    text = report(tmp_path / "p")
    page = Page(text)
    for said in (
        "Repair scale (cpp on cpu)",
        "scale/cpu-cpp/tiny/f32-2x3-0001: INCORRECT (reference-mismatch)",
        "2 elements wrong",
        "-  return 1;",
        "+  return 2;",
        "2: failed, accepted",
        "a-model through replay",
        "2,000 tokens asked (200 cached), 400 answered, 0.5000 USD, 4 s of answers",
        "seed 77",
        "pytest --cgins --cgins-seed=77 --cgins-device=cpu -k scale --cgins-sandbox=on cgins.yaml",
    ):
        assert said in page.code, said
    assert "INCORRECT" in page.plain
    assert "PASSED" in page.plain
    assert "Mind" not in page.plain


def test_whose_words_they_are(tmp_path: Path) -> None:
    """Before the run's own words it says once that nobody has checked them; where there are none, it does not."""
    said = "are the run's own words: nobody has checked them"
    known = {"notes": ["a note"], "search": ["a finding"]}
    page = Page(report(tmp_path / "p", **known))
    assert page.plain.count(said) == 1
    assert page.plain.index(said) < page.plain.index("Mind")
    shown = proposal_text.text(proposal.read(tmp_path / "p"), colour=False)
    assert shown.index(said) < shown.index("! a note")
    silent = {"before": [], "attempts": [proposals.attempt(1, "accepted")]}
    assert said not in Page(report(tmp_path / "q", **silent)).plain
    assert said not in proposal_text.text(proposal.read(tmp_path / "q"), colour=False)


def test_figures(tmp_path: Path) -> None:
    """Times with their interval, speed against torch, error, probes and share of the peak."""
    roofline = Roofline(
        nbytes=1, flops=1, source="signature", peak_bytes_per_s=1.0, peak_flops_per_s=1.0,
        share_of_bandwidth=0.42, share_of_compute=0.1, bound="memory",
    )  # fmt: skip
    timing = replace(measured(compared("base", blocks(-0.3))), roofline=roofline)
    one = make_evaluation(Status.FASTER, timing=timing)
    assert one.correctness is not None
    probes = (
        Probe(name="repeat", outcome="held", reason=Reason.OK),
        Probe(name="poison", outcome="held", reason=Reason.OK),
        Probe(name="guards", outcome="excused", reason=Reason.OK, message="why"),
    )
    one = replace(one, correctness=replace(one.correctness, probes=probes))
    text = report(tmp_path / "p", after=proposals.accepted(one), goal="optimise")
    plain = Page(text).plain
    for said in ("FASTER", "1 us", "10 us", "2x", "0.25", "2 held, 1 excused", "42%"):
        assert said in plain, said
    assert re.search(r"0\.7\d+x\s*0\.7\d+\.\.0\.7\d+", plain)


def test_columns_without_figures_are_left_out(tmp_path: Path) -> None:
    """Where nothing was timed, no column says so in each row."""
    after = proposals.accepted(make_evaluation(times_ns=None))
    plain = Page(report(tmp_path / "p", after=after)).plain
    assert "vs base" not in plain.partition("Patch")[0]
    assert "share of peak" not in plain


def test_missing_sandbox_is_the_first_thing_said(tmp_path: Path) -> None:
    """Whoever reviews must know, before the figures."""
    text = report(tmp_path / "p", sandbox=False)
    assert text.index("The sandbox was off: the sandbox was switched off") < text.index("Before and after")


@pytest.mark.exam
def test_long_reports_are_cut_and_say_so(tmp_path: Path) -> None:
    """A large patch, many cases and many messages still make a report that GitHub takes, with all its parts."""
    many = [
        make_evaluation(Status.INCORRECT, signature=f"f32-{n}", message='"&<>' * 1000) for n in range(400)
    ]
    after = proposals.accepted(*(make_evaluation(signature=f"f32-{n}") for n in range(400)))
    new = "".join(f"line {n}\n" for n in range(20_000))
    text = report(tmp_path / "p", before=many, after=after, new={PATH: new})
    harmless(text)
    page = Page(text)
    assert re.search(r"… \d+ more cases: evidence.json has them all", page.plain)
    assert re.search(r"… \d+ more lines: patch.diff has them all", page.plain)
    assert re.search(r"… 39\d more cases failed\.", page.plain)
    assert "How it was made" in page.plain


def test_lines_of_windows_are_shown_as_lines(tmp_path: Path) -> None:
    """A carriage return before the newline is no oddity to spell out."""
    text = report(tmp_path / "p", base={PATH: "a\r\n"}, new={PATH: "b\r\n"})
    assert "\n-a\n+b\n" in text
