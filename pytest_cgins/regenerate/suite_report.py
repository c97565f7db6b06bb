"""What a suite came to: `results.json`, and a page with its tables and the share solved after each answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from pytest_cgins.core import atomic, documents
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate import plain_harness
from pytest_cgins.regenerate.journal.journal import Journal
from pytest_cgins.regenerate.run_status import spent_on
from pytest_cgins.regenerate.suite import (
    FAST,
    SUITE_VERSION,
    Score,
    Solution,
    Suite,
    curve,
    scores,
    solutions,
)
from pytest_cgins.report.html import axes
from pytest_cgins.report.html.markup import element, join

COLUMNS = (
    "run", "kind of op", ">problems", ">right", ">answers", "against", *(f">fast_{p:g}" for p in FAST[1:]), ">mean speed",
)  # fmt: skip
PLAIN_COLUMNS = (
    "run", ">answers", ">right by allclose", ">of these wrong", ">faster by events", ">of these not", ">right by the gate alone",
)  # fmt: skip
RESULTS, PAGE = "results.json", "suite.html"
_CURVES = ("curve0", "curve1", "curve2", "curve3", "curve4", "curve5")
_STYLE = """body{font:16px/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse}td,th{padding:.2rem .8rem .2rem 0;text-align:left;border-bottom:1px solid #8884}
.plot{max-width:36rem;display:block}.plot text{font-size:9px;fill:currentColor}.end{text-anchor:end}
.middle{text-anchor:middle}.grid{stroke:#8884}.curve{fill:none;stroke-width:1.5}.key{margin-right:1rem}
.curve0{stroke:#0969da;color:#0969da}.curve1{stroke:#bc4c00;color:#bc4c00}.curve2{stroke:#1a7f37;color:#1a7f37}
.curve3{stroke:#8250df;color:#8250df}.curve4{stroke:#bf3989;color:#bf3989}.curve5{stroke:#6e7781;color:#6e7781}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantResults(Document):
    """One variant's part of the results."""

    name: str
    """Of the variant."""
    run: str
    """Its run."""
    scores: tuple[Score, ...]
    """Over all problems, and by kind of op."""
    solutions: tuple[Solution, ...]
    """One a problem."""
    tokens: int
    """Of prompts and answers."""
    usd: float | None
    """Money; None where no model has a price."""
    seconds: float
    """Worked on, with waits for answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteResults(Document):
    """`results.json`."""

    version: int
    """Of the form."""
    suite: Suite
    """What was asked for."""
    variants: tuple[VariantResults, ...]
    """Those that have begun."""


def made(folder: Path, suite: Suite) -> tuple[SuiteResults, list[tuple[str, ...]]]:
    """Write both files from the journals of a suite's runs.

    Args:
        folder: of the suite.
        suite: its file.

    Returns:
        The results, and cells of `PLAIN_COLUMNS`, [] where no plain harness was asked.

    Raises:
        JournalError: a journal is damaged.
        OSError: a file cannot be written.
    """
    parts = []
    for variant in suite.variants:
        if variant.run:
            journal = Journal.read_only(folder / ".cgins" / "runs" / variant.run)
            found, took = solutions(journal), spent_on(journal)
            scored = scores(variant.name, found, len(suite.drawn))
            parts.append(
                VariantResults(
                    name=variant.name,
                    run=variant.run,
                    scores=scored,
                    solutions=found,
                    tokens=took.tokens,
                    usd=None if took.unpriced else took.usd,
                    seconds=journal.earlier_s(),
                )
            )
    results = SuiteResults(version=SUITE_VERSION, suite=suite, variants=tuple(parts))
    atomic.write_text(folder / RESULTS, documents.dump(results, indent=1) + "\n", durable=True)
    plain = plain_harness.read(folder)
    compared = _compared(results.variants, plain)
    atomic.write_text(folder / PAGE, _page(results, compared, plain), durable=True)
    return results, compared


def _compared(
    parts: Iterable[VariantResults], answers: Sequence[plain_harness.PlainAnswer]
) -> list[tuple[str, ...]]:
    return [
        (part.name, *map(str, plain_harness.score(own)))
        for part in parts
        if (own := [one for one in answers if one.run == part.run])
    ]


def rows(found: Iterable[Score]) -> list[tuple[str, ...]]:
    """Cells of `COLUMNS`, a row for each thing that a score is held against."""
    return [
        (
            score.name,
            score.family or "all",
            str(score.problems),
            f"{fast[0]:.0%}",
            f"{score.answers_per_problem:.1f}",
            {"torch": "eager", "compile": "torch.compile"}[against],
            *(f"{share:.0%}" for share in fast[1:]),
            f"{score.mean_speed[against]:.2f}x" if against in score.mean_speed else "–",
        )
        for score in found
        for against, fast in score.fast.items()
    ]


def _page(
    results: SuiteResults, compared: Sequence[Sequence[str]], plain: Sequence[plain_harness.PlainAnswer]
) -> str:
    suite, parts = results.suite, results.variants
    said = (
        f"{suite.source}: {counted(len(suite.drawn), 'problem')}, seed {suite.seed}. Right is what the gate accepted on fresh inputs; "
        "fast_p is the share of all problems with a right kernel more than p times as fast."
    )
    problems = ("run", "problem", "kind", "state", ">answers", ">vs eager", ">vs compile")
    body = [
        element("h1", "Kernels by models, gated"),
        element("p", said),
        _table(COLUMNS, rows(score for part in parts for score in part.scores)),
        *(
            [
                element("h2", "A plain harness beside the gate"),
                _table(PLAIN_COLUMNS, compared),
                element("p", "What it counts as right, or as faster, and the gate does not:"),
                _table(
                    ("answer", ">number", ">speed by events", ">by the gate", "the gate's reason"),
                    _apart(plain),
                ),
            ]
            if compared
            else []
        ),
        element("h2", "What it took"),
        _table(("run", ">tokens", ">USD", ">minutes"), map(_cost, parts)),
        element("h2", "After each answer"),
        _plot(parts, 0.0, "right", len(suite.drawn)),
        _plot(parts, 1.0, "faster than eager torch", len(suite.drawn)),
        element("h2", "Each problem"),
        _table(problems, (_problem(part.name, one) for part in parts for one in part.solutions)),
    ]
    style = Markup(_STYLE)  # noqa: S704 (our own)
    head = join([element("title", "cgins suite"), element("style", style)])
    return f'<!doctype html><html lang="en"><meta charset="utf-8">{head}{element("body", *body)}</html>\n'


def _apart(plain: Iterable[plain_harness.PlainAnswer]) -> Iterator[tuple[str, ...]]:
    for one in plain:
        if one.right and one.is_refuted:
            gate = f"{one.gate_speed:.2f}x" if one.gate_right else "wrong"
            yield one.target, str(one.number), f"{one.speed:.2f}x", gate, one.gate_reason


def _cost(part: VariantResults) -> tuple[str, ...]:
    return (
        part.name,
        f"{part.tokens:,}",
        "unknown" if part.usd is None else f"{part.usd:.2f}",
        f"{part.seconds / 60:.1f}",
    )


def _problem(name: str, one: Solution) -> tuple[str, ...]:
    speeds = [f"{one.speeds[arm]:.2f}x" if arm in one.speeds else "–" for arm in ("torch", "compile")]
    return (name, one.op, one.family, one.state or "not begun", str(one.answers), *speeds)


def _table(columns: Sequence[str], cells: Iterable[Sequence[str]]) -> Markup:
    head = element("tr", *(element("th", column.removeprefix(">")) for column in columns))
    return element("table", head, *(element("tr", *(element("td", cell) for cell in row)) for row in cells))


def _plot(variants: Sequence[VariantResults], above: float, words: str, problems: int) -> Markup:
    curves = [curve(part.solutions, above, problems) for part in variants]
    longest = max([2, *map(len, curves)])
    across, up = axes.across(1, longest), axes.upwards(0, 1)
    lines = [
        element(
            "path",
            class_=f"curve {_CURVES[number % len(_CURVES)]}",
            d="M"
            + "L".join(f"{across.at(place):.1f} {up.at(share):.1f}" for place, share in enumerate(shares, 1)),
        )
        for number, shares in enumerate(curves)
        if shares
    ]
    drawn = axes.picture(
        f"share of problems that are {words}, by answers",
        axes.marks_up(up, [(share, f"{share:.0%}") for share in (0.0, 0.25, 0.5, 0.75, 1.0)]),
        axes.marks_across(
            across, [(place, f"{place:g}") for place in axes.ticks(1, longest) if place == int(place)]
        ),
        *lines,
        below="answers a problem",
        beside=f"share {words}",
    )
    legend = axes.legend((_CURVES[number % len(_CURVES)], part.name) for number, part in enumerate(variants))
    return join([drawn, legend])
