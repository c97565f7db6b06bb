"""A proposal for a terminal. Texts in it come from anybody: what controls a terminal is spelled out."""

from __future__ import annotations

from rich.text import Text

from pytest_cgins.regenerate.proposal import report
from pytest_cgins.regenerate.proposal.read import Contents
from pytest_cgins.report import console
from pytest_cgins.report.escape import no_command, one_line, visible

MESSAGES = 5
MESSAGE_LINES = 20
LINE_LENGTH = 300
_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def text(contents: Contents, *, colour: bool) -> str:
    """All that `report.md` tells, with the whole patch.

    Args:
        contents: the proposal, read.
        colour: whether the terminal has colours.
    """
    proposal, evidence = contents.proposal, contents.evidence
    out = [f"{visible(proposal.title)}\n{report.goal(proposal)}\n"]
    out.append(f"{report.OWN_WORDS}\n\n" if report.has_own_words(proposal) else "\n")
    out += [f"! {_line(note)}\n" for note in report.notes(proposal, evidence)]
    out.append(_facts(report.facts(proposal, evidence)))
    out += [_failure(*one) for one in report.wrong_before(proposal)[:MESSAGES]]
    out.append(f"\n{_cases(contents, colour=colour)}\n")
    out += [f"{_line(said)}\n" for said in proposal.search] + ["\n"] * bool(proposal.search)
    out += [
        _patch_line(line, colour=colour)
        for line in contents.patch.decode("utf-8", "replace").split("\n")[:-1]
    ]
    out.append(f"\nagain  {_line(proposal.command)}\n")
    return "".join(f"{no_command(line)}\n" for line in "".join(out).split("\n")[:-1])


def _line(said: str) -> str:
    return one_line(said, length=LINE_LENGTH)


def _facts(facts: list[tuple[str, str]]) -> str:
    width = max(len(word) for word, _ in facts)
    return "".join(f"{word.ljust(width)}  {_line(said)}\n" for word, said in facts)


def _failure(what: str, message: str) -> str:
    lines = [_line(line) for line in message.splitlines()[:MESSAGE_LINES]]
    return f"\nwas {_line(what)}\n" + "".join(f"    {line}\n" for line in lines)


def _cases(contents: Contents, *, colour: bool) -> str:
    cases = report.cases(contents.proposal, contents.evidence)
    table = console.table(*(column.name for column in cases.columns), colour=colour)
    for row in cases.rows:
        table.add_row(*(_line(cell.text) for cell in row))
    return console.text(table, colour=colour)


def _patch_line(line: str, *, colour: bool) -> str:
    said = visible(line.expandtabs(4))
    if not colour:
        return f"{said}\n"
    return console.text(Text(said, style=_STYLES.get(line[:1], "")), colour=True)
