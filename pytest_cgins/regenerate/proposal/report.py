"""`report.md` of a proposal. Names, messages, sources and models' words in it come from anybody.

Such text stands in HTML `code` elements, and the patch in a fence that is longer than any in it. Neither can begin a
tag, a table, a link, a mention or a reference.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from pytest_cgins.core.device import device_of
from pytest_cgins.core.number_text import time_ns
from pytest_cgins.core.session_report import Environment, Evaluation, SessionReport
from pytest_cgins.core.text import counted
from pytest_cgins.core.verdict import Status
from pytest_cgins.regenerate.attempt import Goal
from pytest_cgins.regenerate.proposal.proposal import Before, Proposal
from pytest_cgins.regenerate.targets import is_of
from pytest_cgins.report.escape import block, code, no_command, visible
from pytest_cgins.report.markdown import row
from pytest_cgins.report.tables import EMPTY, NOTHING, Table, figure, figures, table

OWN_WORDS = "Notes, messages and what a search found are the run's own words: nobody has checked them."
_FIGURES = (
    "kernel time", "time vs base", "95%", "speed vs torch", "quartiles", "error / allowed", "share of peak",
)  # fmt: skip
_COLUMNS = ("case", "before", "after", "time before", *_FIGURES, "probes")
_GOALS: dict[Goal, str] = {
    "repair": "A kernel that the gate refused, repaired.",
    "optimise": "A kernel that was right and too slow, made faster.",
    "generate": "A kernel for an op that had none.",
}


def goal(proposal: Proposal) -> str:
    """What was reached, in a sentence."""
    return _GOALS[proposal.goal]


def has_own_words(proposal: Proposal) -> bool:
    """Whether the run says anything that does not follow from the rest."""
    messages = [
        *(one.message for one in proposal.before),
        *(attempt.message for attempt in proposal.attempts),
    ]
    return any((proposal.notes, proposal.search, proposal.sandbox_note, *messages))


def cases(proposal: Proposal, evidence: SessionReport) -> Table:
    """A row a case, the target's first. All but the name are words and figures of our own."""
    before = {one.case: one for one in proposal.before}
    order = sorted(
        evidence.evaluations, key=lambda one: (not is_of(one.case, proposal.target), one.case.name)
    )
    rows = (_case(evaluation, before.get(evaluation.case.name)) for evaluation in order)
    whole = table("Before and after", _COLUMNS, rows)
    columns = (replace(column, optional=number > 2) for number, column in enumerate(whole.columns))
    return replace(whole, columns=tuple(columns)).shown()


def _case(one: Evaluation, before: Before | None) -> tuple[object, ...]:
    return (
        one.case.name,
        EMPTY if before is None else before.status.value,
        one.verdict.status.value,
        figure(before.kernel_ns_per_call if before is not None else None, time_ns),
        *figures(one, _FIGURES),
        _probes(one),
    )


def _probes(one: Evaluation) -> str:
    """`17 held, 2 excused`: what did not apply is not counted."""
    probes = one.correctness.probes if one.correctness is not None else ()
    found = Counter(probe.outcome for probe in probes)
    told = [f"{found[outcome]} {outcome}" for outcome in ("held", "tripped", "excused") if found[outcome]]
    return ", ".join(told) or NOTHING


def facts(proposal: Proposal, evidence: SessionReport) -> list[tuple[str, str]]:
    """What was done, how, and at what cost: pairs of a word and a text."""
    target, cost = proposal.target, proposal.cost
    tokens = f"{counted(cost.prompt_tokens, 'token', grouped=True)} asked ({cost.cached_tokens:,} cached), {cost.answer_tokens:,} answered"
    paid = "price unknown" if cost.usd is None else f"{cost.usd:.4f} USD"
    outcomes = [attempt.outcome for attempt in proposal.attempts]
    return [
        ("kernel", f"{target.kernel}, {target.implementation} on {target.device} ({target.contract})"),
        ("op", target.op),
        (
            "files",
            ", ".join(f"{path} (new)" if path in proposal.created else path for path in proposal.files),
        ),
        ("base commit", proposal.base_commit or "none: no repository, or changes that were not committed"),
        ("times vs base", evidence.base_revision or "the base revision, where there is one"),
        ("attempts", f"{len(outcomes)}: {', '.join(outcomes) or 'none'}"),
        ("models", f"{', '.join(proposal.models) or 'not named'} through {proposal.provider}"),
        ("cost", f"{tokens}{' (estimated)' * cost.estimated}, {paid}, {cost.seconds:.0f} s of answers"),
        ("sandbox", "on" if proposal.sandbox else f"OFF: {proposal.sandbox_note}"),
        ("memcheck", _memcheck(proposal)),
        ("held-out inputs", f"seed {proposal.held_out_seed}, drawn after the candidate was there"),
        ("devices", "; ".join(_device(environment) for environment in proposal.environments) or NOTHING),
        ("made by", f"pytest-cgins {proposal.cgins}, run {proposal.run_id}, {proposal.created_at}"),
    ]


def wrong_before(proposal: Proposal) -> list[tuple[str, str]]:
    """Failures of before: `case: STATUS (reason)` and the message."""
    failed = [one for one in proposal.before if one.status.outcome in ("fail", "error")]
    return [(f"{one.case}: {one.status.value} ({one.reason.value})", one.message) for one in failed]


def notes(proposal: Proposal, evidence: SessionReport) -> list[str]:
    """What a reader must not miss."""
    said = list(proposal.notes)
    if not proposal.sandbox:
        said.append(f"The sandbox was off: {proposal.sandbox_note}")
    undecided = sum(evaluation.verdict.status is Status.INCONCLUSIVE for evaluation in evidence.evaluations)
    if undecided:
        said.append(f"Times of {counted(undecided, 'case was', 'cases were')} left open by noise")
    foreign = [one for one in evidence.evaluations if not is_of(one.case, proposal.target)]
    failing = [one.case.name for one in foreign if one.verdict.status.outcome in ("fail", "error")]
    said += [f"{name} fails, as it did before: it shares a file with this kernel" for name in failing]
    return said


def _memcheck(proposal: Proposal) -> str:
    if proposal.sanitized:
        return "run; nothing found"
    return "not run" if device_of(proposal.target.device).is_cuda else "not run: no GPU"


def _device(one: Environment) -> str:
    versions = [("torch", one.torch), ("CUDA", one.cuda), ("driver", one.driver), ("Triton", one.triton)]
    return ", ".join([one.device_name, *(f"{name} {version}" for name, version in versions if version)])


LIMIT = 60_000
"""Most characters: GitHub refuses a body with more than 65,536."""
PATCH_LENGTH = 22_000
LINE_LENGTH = 400
MESSAGES = 5
"""Failures of before whose messages are shown."""
MESSAGE_LENGTH = 1200
NAME_LENGTH = 200
TEXT_LENGTH = 600
WRONG_LENGTH = 12_000
"""Characters of them all."""
NOTES = 20
SEARCH_LINES = 25
SEARCH_LENGTH = 300
CASES_LENGTH = 16_000
"""Characters of the table of cases."""
ATTEMPTS = 20
SHORTENED = "\n<p>… shortened: the whole is in proposal.json, evidence.json and patch.diff.</p>\n"


def render(proposal: Proposal, evidence: SessionReport, patch: bytes) -> str:
    """Markdown of at most `LIMIT` characters; what does not fit is counted.

    Args:
        proposal: what it says of itself, validated.
        evidence: of the acceptance.
        patch: patch.diff.
    """
    mind = f"<p>{OWN_WORDS}</p>\n" * has_own_words(proposal)
    parts = [
        f"## {inline(proposal.title)}\n\n<p>{goal(proposal)}</p>\n{mind}",
        _listed("Mind", notes(proposal, evidence), NOTES),
        _wrong(wrong_before(proposal)),
        _cases(cases(proposal, evidence)),
        f"\n### Patch\n{fenced(patch)}",
        _facts(facts(proposal, evidence)),
        _listed("What the search found", proposal.search, SEARCH_LINES, SEARCH_LENGTH),
        _attempts(proposal),
        f"\n### Again\n\n<p>{inline(proposal.command, 2 * TEXT_LENGTH)}</p>\n",
    ]
    text, room = "", LIMIT - len(SHORTENED)
    for part in parts:
        # A part is shown whole or not at all: a cut one could leave an element or a fence open.
        if len(text) + len(part) <= room:
            text += part
    return text if all(part in text for part in parts) else text + SHORTENED


def fenced(patch: bytes) -> str:
    """The beginning of a patch in a fence of markdown, out of which nothing in it gets."""
    lines = [_line(line) for line in patch.decode("utf-8", "replace").split("\n")[:-1]]
    shown: list[str] = []
    room = PATCH_LENGTH
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        shown.append(line)
    longest = max((len(run) for line in shown for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    left_out = len(lines) - len(shown)
    more = f"\n<p>… {counted(left_out, 'more line')}: patch.diff has them all.</p>\n" if left_out else ""
    body = "\n".join(shown)
    return f"\n{fence}diff\n{body}\n{fence}\n{more}"


def _line(line: str) -> str:
    text = no_command(visible(line.removesuffix("\r").expandtabs(4)))
    return text if len(text) <= LINE_LENGTH else f"{text[:LINE_LENGTH]} … ({len(text) - LINE_LENGTH} more)"


def inline(text: str, length: int = TEXT_LENGTH) -> str:
    """Any text in a `code` element, cut to a length in characters, without mentions and references."""
    return _neutral(code(text, length=length))


def _neutral(escaped: str) -> str:
    """Escaped text without the signs that begin a mention or a reference, for readers that look at the source."""
    return re.sub(r"(?<!&)#", "&#35;", escaped.replace("@", "&#64;"))


def _listed(title: str, lines: Sequence[str], most: int, length: int = TEXT_LENGTH) -> str:
    if not lines:
        return ""
    shown = "".join(f"<li>{inline(line, length)}</li>\n" for line in lines[:most])
    more = f"<li>… {len(lines) - most} more</li>\n" if len(lines) > most else ""
    return f"\n### {title}\n\n<ul>\n{shown}{more}</ul>\n"


def _wrong(failures: Sequence[tuple[str, str]]) -> str:
    if not failures:
        return ""
    text, shown = "\n### What was wrong\n\n", 0
    for what, message in failures[:MESSAGES]:
        said = _neutral(block(message, length=MESSAGE_LENGTH)) if message else ""
        part = f"<p>{inline(what)}</p>{said}\n"
        if len(text) + len(part) > WRONG_LENGTH:
            break
        text, shown = text + part, shown + 1
    left_out = len(failures) - shown
    return text + (f"<p>… {counted(left_out, 'more case')} failed.</p>\n" if left_out > 0 else "")


def _cases(table: Table) -> str:
    head = "".join(f"<th>{column.name}</th>" for column in table.columns)
    lines: list[str] = []
    room = CASES_LENGTH
    for name, *cells in table.rows:
        line = row(inline(name.text, NAME_LENGTH), *(cell.text for cell in cells))
        room -= len(line)
        if room < 0:
            break
        lines.append(line)
    left_out = len(table.rows) - len(lines)
    more = f"<p>… {counted(left_out, 'more case')}: evidence.json has them all.</p>\n" if left_out else ""
    return f"\n### {table.title}\n\n<table>\n<tr>{head}</tr>\n{''.join(lines)}</table>\n{more}"


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    lines = "".join(row(word, inline(text)) for word, text in facts)
    return f"\n### How it was made\n\n<table>\n{lines}</table>\n"


def _attempts(proposal: Proposal) -> str:
    if len(proposal.attempts) < 2:
        return ""
    head = "<tr><th>attempt</th><th>outcome</th><th>why</th></tr>\n"
    lines = "".join(
        row(str(attempt.number), attempt.outcome, inline(f"{attempt.reason}: {attempt.message}", 300))
        for attempt in proposal.attempts[-ATTEMPTS:]
    )
    left_out = len(proposal.attempts) - ATTEMPTS
    more = f"<p>… {counted(left_out, 'earlier one')}.</p>\n" if left_out > 0 else ""
    return f"\n<table>\n{head}{lines}</table>\n{more}"
