"""A summary of a search as markdown, as tables for a terminal, and in a few lines.

Names, messages and ids of methods come from models, compilers and repositories: in markdown they stand in HTML `code`
elements, on a terminal what controls it is spelled out.
"""

from __future__ import annotations

import html

from rich.text import Text

from pytest_cgins.core.figures import change, percent, ratio, speedup
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.methods.classes import Tried
from pytest_cgins.regenerate.search.policy import name_of
from pytest_cgins.regenerate.search.summary_model import (
    Against,
    Headline,
    Mean,
    Round,
    SearchSummary,
    Verifiers,
)
from pytest_cgins.regenerate.search.summary_tables import Section, money, sections
from pytest_cgins.report import console
from pytest_cgins.report.escape import code, cut, visible

CELL_LENGTH = 400
_STATES = {
    "accepted": "A faster kernel was accepted",
    "failed": "Nothing was accepted",
    "waiting": "Nothing is accepted yet: it waits",
    "stopped": "Nothing is accepted yet: it was stopped",
    "under-way": "It is under way",
}
_SHORT = {"effective": "worked", "ineffective": "no gain", "implementation-failed": "not built"}
_RIVALS: dict[Against, str] = {"base": "the incumbent", "torch": "torch eager", "compile": "torch.compile"}


def markdown(summary: SearchSummary) -> str:
    """All of it; every figure is one of `summary.json`."""
    lines = "".join(
        f"<tr><td>{html.escape(label)}</td><td>{_code(text)}</td></tr>\n" for label, text in _facts(summary)
    )
    # Within a heading of markdown's own, even what stands in a code element is markdown.
    title = f"<h2>Search of {_code(summary.target.name)}</h2>\n\n<p>{_code(opening(summary))}</p>\n"
    parts = [title, f"\n<table>\n{lines}</table>\n", *(_section(section) for section in sections(summary))]
    return "".join(parts)


def terminal(summary: SearchSummary) -> str:
    """The same as plain text."""
    facts = "".join(f"{label.ljust(10)}  {_line(text)}\n" for label, text in _facts(summary))
    parts = [f"search of {_line(summary.target.name)}\n{_line(opening(summary))}\n\n{facts}"]
    for section in sections(summary):
        parts.append(f"\n{section.title}\n")
        if section.rows:
            table = console.table(colour=False)
            for column in section.columns:
                table.add_column(column, no_wrap=True)
            for row in section.rows:
                table.add_row(*(Text(_line(cell)) for cell in row))
            parts.append(console.text(table, colour=False))
        parts += [f"{_line(note)}\n" for note in section.notes]
    return "".join(parts)


def brief(summary: SearchSummary) -> list[tuple[str, str]]:
    """The headline, a line a round, methods, money: pairs of a word and a text that nobody has escaped."""
    best = summary.headline
    came = f"candidate {best.number} accepted" if best is not None else summary.state
    found = [("search", f"{summary.policy}: {came} ({_counts(summary)})")]
    if best is not None:
        found += [("headline", _faster(mean)) for mean in best.means]
        if best.share_after is not None:
            found.append(("peak", _shares(best)))
    found += [(f"round {one.number}", _round(one)) for one in summary.rounds]
    for result in dict.fromkeys(method.result for method in summary.methods):
        named = [_method(method) for method in summary.methods if method.result == result]
        found.append((_SHORT.get(result, result), ", ".join(dict.fromkeys(named))))
    if summary.verifiers is not None:
        found.append(("verifiers", _verifiers(summary.verifiers)))
    found += [("cost", money(cost)) for cost in summary.costs[-1:]]
    return [*found, ("ended", summary.ended)] if summary.ended else found


def _round(one: Round) -> str:
    champion = "" if one.champion is None else f", champion {one.champion}"
    if one.time_ratio is None:
        return f"none right: {one.decided}"
    return f"best {ratio(one.time_ratio)} of the incumbent's time{champion}: {one.decided}"


def _method(one: Tried) -> str:
    without = one.slowdown_without
    return one.method if without is None else f"{one.method} ({change(without)} without it)"


def opening(summary: SearchSummary) -> str:
    """What came out, in a sentence."""
    best = summary.headline
    if best is None:
        why = f": {summary.ended}" if summary.ended else ""
        return f"{_STATES[summary.state]} ({_counts(summary)}){why}."
    base = next((mean for mean in best.means if mean.against == "base"), None)
    won = "" if base is None else f", {_faster(base)}"
    return f"{_STATES[summary.state]}: {name_of(best.number)}{won} ({_counts(summary)})."


def _facts(summary: SearchSummary) -> list[tuple[str, str]]:
    target, best = summary.target, summary.headline
    facts = [
        ("op", target.op),
        ("run", summary.run),
        ("policy", summary.policy),
        ("asked", summary.provider),
        ("device", summary.device_name or "nothing was tried"),
    ]
    if best is not None:
        shared = f"the chance of a false alarm is shared by {counted(summary.right, 'right candidate')}"
        facts.append(("measured", f"once more, in fresh processes, on held-out inputs; {shared}"))
    if best is not None and best.share_after is not None:
        facts.append(("peak", _shares(best)))
    facts.append(("ended", summary.ended or "not known why"))
    return [*facts, ("remedy", summary.remedy)] if summary.remedy else facts


def _counts(summary: SearchSummary) -> str:
    return f"{counted(len(summary.candidates), 'candidate')}, {summary.right} right"


def _faster(one: Mean) -> str:
    cases = f", geometric mean over {counted(one.cases, 'case')}" if one.cases > 1 else ""
    return f"{speedup(one.ratio)} as fast as {_RIVALS[one.against]} ({ratio(one.low)}..{ratio(one.high)} at 95%{cases})"


def _shares(best: Headline) -> str:
    before = "not known" if best.share_before is None else percent(best.share_before)
    after = "not known" if best.share_after is None else percent(best.share_after)
    return f"{before} of the device's peak before, {after} after"


def _verifiers(said: Verifiers) -> str:
    shares = [
        f"{name} {'not known' if share is None else percent(share)}"
        for name, share in (("precision", said.precision), ("recall", said.recall))
    ]
    return f"{', '.join(shares)}, {counted(said.ranked, 'candidate')} ranked"


# ---- escaping


def _section(one: Section) -> str:
    text = f"\n### {one.title}\n"
    if one.rows:
        head = "".join(f"<th>{html.escape(column)}</th>" for column in one.columns)
        rows = "".join(
            f"<tr>{''.join(f'<td>{_cell(one, *pair)}</td>' for pair in zip(one.columns, row, strict=True))}</tr>\n"
            for row in one.rows
        )
        text += f"\n<table>\n<tr>{head}</tr>\n{rows}</table>\n"
    return text + "".join(f"\n<p>{_code(note)}</p>\n" for note in one.notes)


def _cell(one: Section, column: str, text: str) -> str:
    return _code(text) if column in one.foreign else html.escape(text)


def _code(text: str) -> str:
    return code(text, length=CELL_LENGTH)


def _line(text: str) -> str:
    return visible(cut(" ".join(text.split()), CELL_LENGTH))
