"""What a reviewer reads first: counts, the worst verdict, what it was measured on, and how to see it again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from pytest_cgins.core.figures import change, percent, ratio, speedup
from pytest_cgins.core.model import Environment, Evaluation, SessionReport, Status
from pytest_cgins.core.text import counted
from pytest_cgins.gate.timing_verdict import interval
from pytest_cgins.report import compiled, coverage, failure, in_common, markdown, summary, time_lines, times
from pytest_cgins.report.counts import Counts
from pytest_cgins.report.html.listing import NOTHING, badge, plain_table
from pytest_cgins.report.html.markup import Markup, code, element, join
from pytest_cgins.report.html.naming import Names


def title(found: Counts) -> str:
    """Counts in words: `2 failed, 1 passed`."""
    parts = [
        (found.failed, f"{found.failed:,} failed"),
        (found.errors, counted(found.errors, "error", grouped=True)),
        (found.skipped, f"{found.skipped:,} skipped"),
    ]
    present = [text for number, text in parts if number]
    weak = f" ({found.weak:,} weak)" if found.weak else ""
    return ", ".join([*present, f"{found.passed:,} passed{weak}"])


def overview(report: SessionReport) -> Markup:
    """The head of the page."""
    return join([_worst(report), *_notices(report), _facts(report)])


def _worst(report: SessionReport) -> Markup:
    """The first of the failures; without one, that there is none."""
    names = Names(report)
    found = [
        (
            one.verdict.status,
            summary.outcome(one, strict=report.strict),
            names.case(one),
            failure.headline(one),
            markdown.reproduction(one, report),
            f"#cases-{place}",
        )
        for place, one in enumerate(summary.failures(report.evaluations, strict=report.strict)[:1], 1)
    ]
    found += [
        (
            one.verdict.status,
            one.verdict.status.outcome,
            one.name,
            failure.headline(one),
            compiled.command(one),
            f"#builds-{place}",
        )
        for place, one in enumerate(compiled.failures(report.compilations)[:1], 1)
    ]
    if not found:
        ended = f"No case failed, and the run ended with exit code {report.exit_status}."
        return element("p", ended if report.exit_status else "Nothing failed.", class_="worst")
    status, outcome, name, headline, command, place = min(found, key=lambda one: summary.rank(one[0]))
    said = headline.removeprefix(status.value)
    return element(
        "div",
        element("p", "Worst: ", badge(status, outcome), " ", element("a", name, href=place)),
        element("p", said.strip()),
        element("p", element("strong", "Again: "), element("code", command, class_="command")),
        class_="worst",
    )


def _notices(report: SessionReport) -> Iterator[Markup]:
    """What speaks against trusting the rest, then what gating times came to."""
    if report.weaker:
        yield _notice(f"{coverage.weaker(report)}.")
        yield _folded("Weaker settings", report.weaker)
    if report.empty and not report.compilations:
        yield _notice(f"Nothing was gated: {coverage.empty(report)}.")
    for one in summary.ungated(report.evaluations):
        cases = "1 case" if one.cases == 1 else f"all {counted(one.cases, 'case', grouped=True)}"
        yield _notice(f"Not gated: {one.kernel}/{one.implementation}, {cases}: {one.message}")
    for shared in in_common.in_common(report):
        said = f"In common: {shared.kernel}/{shared.implementation} ({shared.device}): {shared.words}."
        yield element("p", said)
    if report.missing:
        yield _notice(f"{coverage.headline(report)}: {coverage.remedy(report)}.")
        yield _folded("Missing cases", report.missing)
    if report.stale:
        yield _notice("Changed after it was tested: run again.")
        yield _folded("What changed", report.stale)
    if said := coverage.unread(report):
        yield _notice(said)
    elif report.coverage_note:
        yield element("p", f"Cases are not held against the base revision: {report.coverage_note}")
    gate = times.time_gate(report)
    if gate is not None:
        yield element("p", time_lines.gate_line(gate))
    yield from (
        element("p", time_lines.not_held_line(one), class_="note")
        for one in times.not_held(report.evaluations)
    )
    yield from (
        element("p", time_lines.uncalibrated_line(*one), class_="note")
        for one in times.uncalibrated(report.evaluations)
    )
    clocks = times.clock_notes(report.evaluations)
    if clocks is not None:
        yield from (element("p", f"Clocks: {line}", class_="note") for line in time_lines.clock_lines(clocks))


def _notice(text: str) -> Markup:
    return element("p", element("strong", text), class_="notice")


def _folded(title: str, lines: tuple[str, ...]) -> Markup:
    items = (element("li", code(line)) for line in lines)
    return element("details", element("summary", f"{title} ({len(lines):,})"), element("ul", *items))


def _facts(report: SessionReport) -> Markup:
    said: list[tuple[str, str]] = [("Exit code", str(report.exit_status))]
    said += [("Device", _environment(one)) for one in report.environments]
    compared = ", ".join(commit[:10] for commit in compiled.revisions(report.compilations))
    base = report.base_revision or compared or _bases(report)
    said.append(("Compared with", base or "no base revision"))
    options = ["--cgins-strict"] * report.strict
    command = shlex.join(["pytest", "--cgins", f"--cgins-seed={report.seed}", *options])
    if not report.compilations and len(summary.seeds(report)) == 1:
        said.append(("All again", element("code", command, class_="command")))
    said += [
        ("Started", element("time", report.started_at, datetime=report.started_at)),
        ("Took", f"{report.seconds:.1f} s"),
        ("pytest-cgins", report.cgins),
    ]
    pairs = (join([element("dt", name), element("dd", value)]) for name, value in said)
    return element("dl", *pairs, class_="facts")


def _bases(report: SessionReport) -> str:
    """Commits that cases were timed against."""
    measured = (one.measurement for one in report.evaluations if one.measurement is not None)
    commits = dict.fromkeys(one.base_revision[:10] for one in measured if one.base_revision)
    return ", ".join(commits)


def _environment(one: Environment) -> str:
    versions = (
        ("Python", one.python),
        ("torch", one.torch),
        ("CUDA", one.cuda),
        ("driver", one.driver),
        ("Triton", one.triton),
    )
    known = [f"{name} {version}" for name, version in versions if version]
    return ", ".join([f"{one.device}: {one.device_name}", *known])


_KERNELS = (
    "kernel", "implementation", "cases", "status", "worst error / allowed", "time vs base", "speed vs torch",
    "share of peak",
)  # fmt: skip


def kernels(report: SessionReport) -> Markup:
    """A row a kernel implementation."""
    rows = [_kernel(one) for one in summary.rows(report.evaluations)]
    kept = [i for i in range(len(_KERNELS)) if i < 5 or any(row[i] != NOTHING for row in rows)]
    table = plain_table(
        "Kernels", [_KERNELS[i] for i in kept], [[row[i] for i in kept] for row in rows], caption_hidden=True
    )
    return _section("kernels", "Kernels", table)


def _kernel(row: summary.KernelRow) -> tuple[str, ...]:
    base, speed = row.base, row.speed
    worst = "" if base is None or base.cases == 1 else f" (worst {change(base.worst)})"
    spread = "" if speed is None or speed.cases == 1 else f" ({ratio(speed.low)}..{ratio(speed.high)})"
    return (
        row.kernel,
        f"{row.implementation} ({row.device})",
        f"{row.cases:,}",
        ", ".join(f"{count:,} {status.value}" for status, count in row.statuses),
        NOTHING if row.share is None else ratio(row.share),
        NOTHING if base is None else f"{change(base.median)}{worst}",
        NOTHING if speed is None else f"{speedup(speed.median)}{spread}",
        NOTHING if row.peak is None else percent(row.peak),
    )


def remarks(report: SessionReport) -> Markup:
    """What else is to be known: likely slowdowns, weak cases, and what was left out, with the number of cases."""
    evaluations, compilations = report.evaluations, report.compilations
    names = Names(report)
    likely = [(names.case(one), _likely(one)) for one in times.probably_slower(evaluations)]
    weak = [(names.case(one), ", ".join(forged)) for one, forged in summary.weak(evaluations)]
    excused = [(one.kernel, one.probe, f"{one.cases:,}", one.reason) for one in summary.excused(evaluations)]
    tables = [
        plain_table("Probably slower", ("case", "time vs base"), likely),
        element("p", f"{time_lines.LIKELY[0].upper()}{time_lines.LIKELY[1:]}.") if likely else Markup(),
        plain_table("Weak cases", ("case", "would pass too"), weak),
        _counted("Skipped", "cases", summary.skips(evaluations)),
        plain_table("Excused from probes", ("kernel", "probe", "cases", "why"), excused),
        _counted("Notes", "cases", summary.notes(evaluations)),
        _counted("Probes not run", "cases", summary.probes_not_run(evaluations)),
        *(
            _counted(f"Builds: {status.value}", "builds", compiled.reasons(compilations, status))
            for status in (Status.PASSED, Status.NEW, Status.SKIPPED)
        ),
        _counted("Notes on builds", "builds", compiled.notes(compilations)),
    ]
    return _section("remarks", "Remarks", join(tables))


def _likely(evaluation: Evaluation) -> str:
    test = times.comparison(evaluation)
    assert test is not None
    return f"{interval(test)} in {counted(len(test.log_ratios), 'block', grouped=True)}"


def _counted(caption: str, what: str, reasons: tuple[tuple[str, int], ...]) -> Markup:
    return plain_table(caption, (what, "reason"), [(f"{count:,}", reason) for reason, count in reasons])


def _section(id_: str, heading: str, body: Markup) -> Markup:
    if not body:
        return Markup()
    return element("section", element("h2", heading, id=id_), body, aria_labelledby=id_)


def plots(drawn: Markup) -> Markup:
    """The rooflines, if there are any."""
    return _section("roofline", "Roofline", element("div", drawn, class_="plots") if drawn else drawn)
