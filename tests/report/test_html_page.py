"""The report as one HTML file: its structure, what it may load, and hostile texts."""

from __future__ import annotations

import base64
import hashlib
import html
import html.parser
import math
import re
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from html_reports import builds, history_of, many, report_of
from hypothesis import given, settings
from hypothesis import strategies as st
from timings import compared

from pytest_cgins.core.environment_key import key_of
from pytest_cgins.core.number_text import scaled
from pytest_cgins.core.session_report import Evaluation, SessionReport
from pytest_cgins.core.verdict import Probe, Reason, Status, Verdict, WorstElement
from pytest_cgins.gate.timing_verdict import interval
from pytest_cgins.report import failure, summary
from pytest_cgins.report.html.markup import element, lines
from pytest_cgins.report.html.page import render
from pytest_cgins.report.html.plots import paired, rooflines

VOID = {"meta", "link", "input"}
LOADING = (
    "src",
    "srcset",
    "action",
    "formaction",
    "data",
    "poster",
    "ping",
    "background",
    "style",
    "xlink:href",
)
HOSTILE = (
    "<script>alert(1)</script>",
    "</noscript><img src=x onerror=alert(1)>",
    "</script><svg onload=alert(1)>",
    "\"' onfocus=alert(1) autofocus x='",
    "]]><!-- --!> <![CDATA[ <?php ?> &lt; &#10; &",
    "\u202egnp.exe\u2066 \x1b[31mred\x00\r\n\u2028line",
    "$title ${body} {{ x }} %s",
    "https://example.invalid/pixel.png",
    "\udce9 lone",
)


@dataclass
class Node:
    """An element with its texts and children."""

    tag: str
    attributes: dict[str, str | None] = field(default_factory=dict)
    children: list[Node | str] = field(default_factory=list)

    def all(self, tag: str | None = None, class_: str = "") -> list[Node]:
        """Elements below, in the order of the page."""
        below = [one for one in self.children if isinstance(one, Node)]
        found = []
        for one in below:
            classes = (one.attributes.get("class") or "").split()
            if (tag is None or one.tag == tag) and (not class_ or class_ in classes):
                found.append(one)
            found += one.all(tag, class_)
        return found

    def text(self) -> str:
        """All of it, in the order of the page."""
        return "".join(one if isinstance(one, str) else one.text() for one in self.children)


class Tree(html.parser.HTMLParser):
    """The page as a browser without scripts reads it; what is not closed in order is an error."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Node("")
        self._open = [self.root]
        self.others: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == [self.root], [one.tag for one in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute twice: {attrs}"
        node = Node(tag, dict(attrs))
        self._open[-1].children.append(node)
        if tag not in VOID:
            self._open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].children.append(Node(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)

    def handle_comment(self, data: str) -> None:
        self.others.append(data)

    def handle_pi(self, data: str) -> None:
        self.others.append(data)

    def unknown_decl(self, data: str) -> None:
        self.others.append(data)


def parsed(page: str) -> Node:
    """The tree, of a page without comments and the like."""
    tree = Tree(page)
    assert not tree.others
    return tree.root


def check_page(page: str) -> Node:
    """What holds of every page: references lead somewhere, nothing is loaded, nothing but its own script runs."""
    root = parsed(page)
    ids = Counter(one.attributes["id"] for one in root.all() if "id" in one.attributes)
    assert not [one for one, count in ids.items() if count > 1]
    for one in root.all():
        for name, value in one.attributes.items():
            assert not name.startswith("on"), (one.tag, name)
            assert name not in LOADING, (one.tag, name)
            if name == "href":
                assert (value or "").startswith("#") or (one.tag, value) == ("link", "data:,")
                assert value == "data:," or value[1:] in ids
            if name in ("for", "aria-labelledby"):
                assert value in ids
    assert len(root.all("script")) == len(root.all("style")) == len(root.all("h1")) == 1
    (style,), (script,) = root.all("style"), root.all("script")
    assert not re.search(r"url\(|@import|https?:", style.text())
    assert not re.search(r"fetch\(|XMLHttpRequest|WebSocket|import\(|https?:", script.text())
    (policy,) = [one for one in root.all("meta") if "http-equiv" in one.attributes]
    for name, part in (("style-src", style), ("script-src", script)):
        digest = base64.b64encode(hashlib.sha256(part.text().encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}';" in policy.attributes["content"]
    assert "default-src 'none';" in policy.attributes["content"]
    return root


def details_of(root: Node, name: str) -> Node:
    """The details of a case."""
    (found,) = [one for one in root.all("details") if name in [n.text() for n in one.all("span", "name")]]
    return found


@pytest.fixture(scope="module")
def report() -> SessionReport:
    """Of sixty cases, with each kind of verdict."""
    return many(60)


@pytest.fixture(scope="module")
def root(report: SessionReport) -> Node:
    """Its page."""
    return check_page(render(report, trends=history_of(report)))


def test_a_page_loads_nothing_and_each_reference_leads_somewhere(root: Node) -> None:
    """One file: its links stay in it, its policy names the digests of its style and script and forbids all else."""
    assert root.all("html")[0].attributes["lang"] == "en"
    assert len(root.all("a")) > 120


@pytest.mark.exam
def test_each_case_is_a_row_that_leads_to_its_details(report: SessionReport, root: Node) -> None:
    """Worst first; the place that a row leads to is inside of the details, so that browsers open them."""
    rows = [one for one in root.all("tr") if "data-status" in one.attributes]
    assert {row.all("a")[0].text() for row in rows} == {one.case.name for one in report.evaluations}
    ranks = [int(row.all("td")[0].attributes["data-n"]) for row in rows]
    assert ranks == sorted(ranks)
    assert ranks[0] < ranks[-1]
    for row in rows:
        (link,) = row.all("a")
        places = {one.attributes.get("id") for one in details_of(root, link.text()).all()}
        assert link.attributes["href"][1:] in places
        badge = row.all("span", "badge")[0]
        assert badge.text() == row.attributes["data-status"]


@pytest.mark.exam
def test_the_head_tells_counts_device_revision_and_how_to_see_it_again(report: SessionReport) -> None:
    """And the worst verdict with its command, which is the one that markdown has."""
    text = " ".join(parsed(render(report)).text().split())
    worst = min(
        (one for one in report.evaluations if one.verdict.status is Status.INCORRECT),
        key=lambda one: one.case.name,
    )
    assert f"Worst: INCORRECT {worst.case.name}" in text
    assert failure.command(worst, report) in text
    assert "NVIDIA H200" in text
    assert report.base_revision in text
    commit = report.base_revision.split()[0]
    again = f"pytest --cgins --cgins-seed=7 --cgins-baseline={commit}"
    assert again in [node.text() for node in parsed(render(report)).all("code", "command")]
    assert re.search(r"cgins: \d+ failed, \d+ skipped, \d+ passed \(\d+ weak\)", text)


def test_details_have_what_a_failure_rests_on(report: SessionReport, root: Node) -> None:
    """Reason, checks, the worst element, probes, forged answers."""
    wrong = next(one for one in report.evaluations if one.verdict.status is Status.INCORRECT)
    text = details_of(root, wrong.case.name).text()
    for said in (
        "reference-mismatch",
        "12.5",
        "output 0 at [1, 2]",
        "1.5",
        "nan",
        "±1.25e-05",
        "..#\n.#.",
        "poison",
        "content_cache",
        "zeros",
        "Note: the reference is fp32 here",
        wrong.case.op,
    ):
        assert said in text, said
    crashed = next(one for one in report.evaluations if one.verdict.status is Status.RUNTIME_ERROR)
    text = details_of(root, crashed.case.name).text()
    assert "What to do: run it under --cgins-sanitize" in text
    assert "Segmentation fault" in text


def test_a_case_that_is_timed_has_a_plot_of_its_blocks(report: SessionReport, root: Node) -> None:
    """One for each process, with a point a block and the interval in words; and its history."""
    slower = [one for one in report.evaluations if one.verdict.status is Status.SLOWER]
    one = next(one for one in slower if one.case.device == "cuda:0")
    assert one.measurement is not None
    assert one.measurement.confirmation is not None
    figures = details_of(root, one.case.name).all("figure")
    tests = [one.measurement.comparisons[0], one.measurement.confirmation.comparisons[0]]
    for figure, test in zip(figures[:2], tests, strict=True):
        (drawn,) = figure.all("svg", "plot")
        (dots,) = drawn.all("path", "dots")
        assert dots.attributes["d"].count("h0") == len(test.log_ratios)
        assert interval(test) in drawn.attributes["aria-label"]
        assert drawn.attributes["role"] == "img"
    (history,) = figures[2:]
    assert len(history.all("path", "trend")) == 2
    assert "driver 570.10 → 580.65.06" in history.text()
    assert "Times may move without the kernel" in history.text()


@pytest.mark.exam
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=64), st.floats(-0.5, 0.5))
@settings(deadline=None, max_examples=50)
def test_a_plot_has_its_points_where_the_numbers_are(ratios: list[float], shift: float) -> None:
    """A slower block is higher, none is outside, and the edge of the band is at what is tolerated."""
    test = compared("torch", ratios, shift=shift)
    figure = parsed(paired(test, "x"))
    (drawn,) = figure.all("svg", "plot")
    (dots,) = drawn.all("path", "dots")
    places = [tuple(map(float, one)) for one in re.findall(r"M([\d.]+) ([\d.]+)h0", dots.attributes["d"])]
    assert len(places) == len(test.log_ratios)
    assert all(0 <= x <= 360 and 0 <= y <= 200 for x, y in places)
    assert [x for x, _ in places] == sorted(x for x, _ in places)
    (band,) = drawn.all("rect", "tolerated")
    lower = math.log1p(test.tolerate) - test.shift
    for (_, y), value in zip(places, test.log_ratios, strict=True):
        if abs(value - lower) > 0.02:
            assert (y < float(band.attributes["y"]) + 0.11) == (value > lower)


def test_a_comparison_without_blocks_is_no_plot() -> None:
    """Where each block was thrown away."""
    assert paired(replace(compared("base", [0.0]), log_ratios=()), "x") == ""


def test_rooflines_are_drawn_where_work_and_peaks_are_known(report: SessionReport) -> None:
    """One a device and pair of peaks, a point a case, none above the roof whose shares are below one."""
    known = [
        one
        for one in report.evaluations
        if one.measurement is not None and one.measurement.roofline is not None
    ]
    names = summary.names(report)
    drawn = parsed(rooflines(report.evaluations, names))
    assert len(drawn.all("circle")) == len(known)
    assert len(drawn.all("figure")) == len({one.case.device for one in known})
    for figure in drawn.all("figure"):
        (roof,) = figure.all("path", "roof")[:1]
        corners = [tuple(map(float, one.split())) for one in roof.attributes["d"][1:].split("L")]
        (x0, y0), (x1, y1), _ = corners
        for point in figure.all("circle"):
            x, y = float(point.attributes["cx"]), float(point.attributes["cy"])
            top = y1 if x >= x1 else y0 + (y1 - y0) * (x - x0) / (x1 - x0)
            name = point.text().partition(":")[0]
            (one,) = [one.measurement.roofline for one in known if one.case.name == name and one.measurement]
            assert one is not None
            if max(one.share_of_bandwidth, one.share_of_compute) <= 1:
                assert y >= top - 0.5
    without = [
        replace(
            one,
            measurement=replace(
                one.measurement, roofline=replace(one.measurement.roofline, flops=0, share_of_compute=0.0)
            ),
        )
        for one in known
    ]
    assert rooflines(without, names) == ""


def test_builds_have_a_table_of_their_own() -> None:
    """With the base's resources in brackets, what changed in the code, and the command."""
    root = check_page(render(report_of(compilations=builds())))
    rows = {one.all("a")[0].text(): one for one in root.all("tr") if "data-status" in one.attributes}
    assert list(rows) == ["rms_norm/cuda/sm_90a", "softmax/cuda/sm_90a", "layer_norm/cuda/sm_90a"]
    assert "48 (40)" in rows["softmax/cuda/sm_90a"].text()
    text = details_of(root, "softmax/cuda/sm_90a").text()
    for said in ("opcodes FFMA +8", "--cgins-compile-only", "What to do: gate:", "void softmax<float, 4>"):
        assert said in text, said
    assert "identifier <x> is undefined" in details_of(root, "rms_norm/cuda/sm_90a").text()
    assert "Skip to the table" in root.text()


def test_columns_without_a_figure_are_left_out() -> None:
    """A report whose kernels were not timed has no columns of times."""
    untimed = [replace(one, measurement=None) for one in many(8).evaluations]
    table = check_page(render(report_of(*untimed)))
    (listed,) = [one for one in table.all("section") if one.attributes.get("data-list") == "cases"]
    table = listed.all("table")[0]
    assert [one.text() for one in table.all("th") if one.attributes.get("scope") == "col"] == [
        "case",
        "status",
        "reason",
        "device",
        "error / allowed",
    ]


def test_a_run_without_cases_says_so() -> None:
    """And the skip link leads somewhere nevertheless."""
    empty = replace(report_of(), empty=True, missing=("cgins.yaml::a/b",), stale=("the sources of a",))
    text = check_page(render(empty)).text()
    assert "Nothing was gated: there was no case" in text
    assert "cgins.yaml::a/b" in text
    assert "the sources of a" in text


def test_what_notes_say_is_on_the_page(report: SessionReport) -> None:
    """Reasons of skips, excuses from probes and weak cases, with the number of cases."""
    one = next(one for one in report.evaluations if one.correctness is not None)
    assert one.correctness is not None
    excused = Probe(name="late_work", outcome="excused", reason=Reason.OK, message="has its own stream")
    more = replace(one, correctness=replace(one.correctness, probes=(excused,)))
    text = check_page(render(report_of(*report.evaluations, more))).text()
    for said in (
        "no NVIDIA GPU",
        "has its own stream",
        "content_cache: the kernel was not timed",
        "Weak cases",
    ):
        assert said in text, said


def test_remarks_of_one_cause_are_one_line_that_unfolds(report: SessionReport) -> None:
    """A page of thirty reasons why a probe was not run is a line with a count, and nothing is cut."""
    one = next(one for one in report.evaluations if one.correctness is not None)
    assert one.correctness is not None
    refused = [
        Probe(name="arguments", outcome="not-run", reason=Reason.OK, message=f"refused: {size}")
        for size in range(30)
    ]
    noted = [replace(one, correctness=replace(one.correctness, probes=(probe,))) for probe in refused]
    root = check_page(render(report_of(*noted)))
    (group,) = [
        node
        for node in root.all("details")
        if node.all("summary")[0].text().startswith("arguments") and len(node.all("summary")) == 1
    ]
    assert group.all("summary")[0].text() == "arguments (30)"
    assert [item.text() for item in group.all("li")] == [
        f"1 case: arguments: refused: {n}" for n in range(30)
    ]


@pytest.mark.exam
def test_notices_with_one_heading_are_one_line_that_unfolds(report: SessionReport) -> None:
    """Twenty changed files do not push the kernels off the first screen."""
    stale = tuple(f"the sources of k{number}" for number in range(20))
    root = check_page(render(replace(report, stale=stale)))
    assert "Changed (20)" in [node.text() for node in root.all("summary")]
    assert all(source in root.text() for source in stale)


def shaped(root: Node) -> list[str]:
    """The tags of a page, in their order."""
    return [one.tag for one in root.all()]


def told(text: str) -> SessionReport:
    """A report that has a text wherever a repository under test can put one."""
    one = next(one for one in many(8).evaluations if one.verdict.status is Status.INCORRECT)
    assert one.correctness is not None
    probe = Probe(name="repeat", outcome="tripped", reason=Reason.NOT_REPEATABLE, message=text)
    worst = WorstElement(output=0, index=(1,), expected=text, got=text, tolerance=1.0)
    checks = tuple(
        replace(one, worst=worst, message=text, inputs=text, map=text) for one in one.correctness.checks
    )
    hostile = replace(
        one,
        case=replace(one.case, kernel=text, implementation=text, signature=text, op=text, dtype=text),
        verdict=replace(one.verdict, message=f"a\n→ {text}"),
        correctness=replace(one.correctness, checks=checks, probes=(probe,), notes=(text,)),
        output=text,
        config=text,
    )
    compilations = tuple(
        replace(
            build,
            kernel=text,
            notes=(text,),
            arch=text,
            resources=tuple(replace(function, function=text) for function in build.resources),
        )
        for build in builds()[:1]
    )
    return replace(
        report_of(hostile, compilations=compilations),
        missing=(text,),
        stale=(text,),
        coverage_note=text,
        base_revision=text,
        cgins=text,
        started_at=text,
        environments=(replace(report_of().environments[0], device_name=text, torch=text),),
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_is_only_text(text: str) -> None:
    """The page has the elements that it has for a harmless text, to a parser with scripts and to one without."""
    page = render(told(f"x{text}y"))
    page.encode()
    found, plain = check_page(page), check_page(render(told("xy")))
    assert shaped(found) == shaped(plain)
    # With scripts, `noscript` ends at the first thing that looks like its end.
    assert len(re.findall("</noscript", page, re.IGNORECASE)) == len(found.all("noscript")) == 2
    for folded in re.findall(r"<noscript .*?>(.*?)</noscript>", page, re.DOTALL):
        parsed(folded)


@pytest.mark.exam
@given(st.text(st.characters(), min_size=1, max_size=40))
@settings(deadline=None, max_examples=150)
def test_any_text_is_only_text(text: str) -> None:
    """Whatever it has, lone surrogates too."""
    page = render(told(f"x{text}y"))
    page.encode()
    assert shaped(check_page(page)) == shaped(check_page(render(told("xy"))))


@given(st.text(st.characters(), max_size=60))
def test_an_attribute_and_a_text_are_read_as_they_are_written(text: str) -> None:
    """What can be printed comes back from the parser unchanged; what cannot is spelled out."""
    (node,) = parsed(element("p", text, data_x=text)).all("p")
    if text.isprintable():
        assert node.text() == text
        assert node.attributes["data-x"] == text
    assert node.text().isascii() or not re.search("[\u202a-\u202e\u2066-\u2069]", node.text())
    assert node.text().count("\n") == text.replace("\r\n", "\n").count("\n")


def test_line_breaks_are_shown_as_such_wherever_a_text_stands() -> None:
    """No person reads `\\u000a`."""
    page = render(told("first\n\tsecond\r\nthird"))
    assert not re.findall(r"\\u000[9ad]", page)
    assert "first&#10;    second&#10;third" in page


def test_lines_keep_their_indentation() -> None:
    """And their beginning, whatever it is."""
    (node,) = parsed(lines("    a\n\tb\r\n\n  c\n")).all("pre")
    assert node.text() == "    a\n    b\n\n  c"


def test_a_long_text_is_cut_and_says_so() -> None:
    """The JSON report has it all."""
    text = render(told("a" * 30_000))
    assert "... (10000 more characters)" in text


@pytest.mark.exam
def test_two_thousand_cases_are_a_file_of_a_few_megabytes() -> None:
    """Some eight kilobytes a case, plots included."""
    page = render(many(2000))
    assert len(page.encode()) < 2000 * 9000
    assert page.count("<noscript ") == 2000


def test_weak_and_open_cases_have_a_colour_of_their_own() -> None:
    """Under --cgins-strict a weak case is one that failed."""
    weak = next(one for one in many(20).evaluations if one.verdict.status is Status.WEAK)
    for strict, kind in ((False, "warn"), (True, "fail")):
        root = check_page(render(report_of(weak, strict=strict)))
        badges = {one.attributes["class"] for one in root.all("span", "badge")}
        assert badges == {f"badge {kind}"}


def timed(report: SessionReport) -> Evaluation:
    """One of its cases on a GPU that were timed and passed."""
    return next(
        one
        for one in report.evaluations
        if one.measurement is not None and one.case.device == "cuda:0" and one.verdict.status is Status.SAME
    )


def test_a_case_on_two_types_of_gpus_is_two(report: SessionReport) -> None:
    """The model stands in the name, in the column and in the filter, as in a merged report."""
    both = [replace(timed(report), device_name=name) for name in ("NVIDIA A100", "NVIDIA H200")]
    root = check_page(render(replace(report, evaluations=tuple(both))))
    name = both[0].case.name
    links = [one.all("a")[0].text() for one in root.all("tr") if "data-status" in one.attributes]
    assert links == [f"{name} on NVIDIA A100", f"{name} on NVIDIA H200"]
    chosen = [one.text() for one in root.all("option")]
    assert {"NVIDIA A100 (1)", "NVIDIA H200 (1)"} <= set(chosen)
    assert "cuda:0" not in chosen
    assert details_of(root, links[1])


def test_a_case_of_two_configurations_is_two(report: SessionReport) -> None:
    """The file stands before the name where a session had several."""
    both = [replace(timed(report), config=name) for name in ("a/cgins.yaml", "b/cgins.yaml")]
    root = check_page(render(replace(report, evaluations=tuple(both))))
    links = [one.all("a")[0].text() for one in root.all("tr") if "data-status" in one.attributes]
    assert links == [f"{one.config}::{one.case.name}" for one in both]


def test_a_history_is_that_of_the_device(report: SessionReport) -> None:
    """What another model took later is not what the case takes now, and is not drawn."""
    one = timed(report)
    alone = replace(report, evaluations=(one,))
    own, others = history_of(alone, runs=4)[0], history_of(alone, runs=6)[0]
    elsewhere = [
        replace(segment, hard=key_of({**segment.hard.parts, "device": "NVIDIA A100"}))
        for segment in others.segments
    ]
    others = replace(others, segments=tuple(elsewhere))
    mixed = replace(own, segments=(*own.segments, *others.segments))
    page = render(alone, trends=[mixed])
    assert page == render(alone, trends=[own])
    assert "4 runs" in page
    assert render(alone, trends=[others]) == render(alone)


def test_what_failed_a_run_besides_its_cases_is_told(report: SessionReport) -> None:
    """Nothing failed only where the exit code says so as well; what no case gates is named."""
    clean = replace(report, evaluations=(timed(report),), exit_status=0)
    assert "Nothing failed." in render(clean)
    page = render(replace(clean, exit_status=1))
    assert "Nothing failed." not in page
    assert "No case failed, and the run ended with exit code 1." in page
    one = timed(report)
    refused = replace(
        one,
        measurement=None,
        verdict=Verdict(status=Status.SKIPPED, reason=Reason.CONTRACT, message="no strides", numbers={}),
    )
    page = render(replace(clean, evaluations=(refused,), exit_status=1))
    assert (
        f"Not gated: {one.case.kernel}/{one.case.implementation}: its contract covers none of its 1 case: no strides"
        in page
    )


def test_a_build_without_figures_has_none_to_sort_by() -> None:
    """A dash that the script knows, not a text that comes before all numbers."""
    root = check_page(render(report_of(compilations=builds())))
    (row,) = [one for one in root.all("tr") if "rms_norm" in one.text() and "data-status" in one.attributes]
    empty = [one.text() for one in row.all("td", "number") if "data-n" not in one.attributes]
    assert empty
    assert set(empty) == {"–"}


@pytest.mark.parametrize(
    ("value", "text"), [(999.6e9, "1 T"), (4.02e12, "4.02 T"), (999.4, "999 "), (0.0, "0 "), (3.0, "3 ")]
)
def test_rates_have_the_prefix_of_what_is_printed(value: float, text: str) -> None:
    """What rounds up to a thousand has the next one."""
    assert scaled(value) == text
