"""What went wrong, most telling first: the verdicts, each once for all cases that share it, with their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.building.compilers import diagnostics
from pytest_cgins.core.model import Check, Evaluation, Probe, Status
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.model import Attempt
from pytest_cgins.regenerate.prompts import blocks

MOST_NBYTES = 9000
_MOST_GROUPS = 5
_MOST_CASES = 4
_MOST_LOG = 5000
_MOST_MESSAGE = 1600
_MOST_OUTPUT = 1200
_MOST_MAP = 1200
_LONGEST_LOG = 2 << 20
_HINTS = {
    Status.BUILD_ERROR: 0, Status.RUNTIME_ERROR: 1, Status.TIMEOUT: 2, Status.INCORRECT: 3, Status.SUSPECT: 4,
}  # fmt: skip
"""What to look at first: what does not build hides what is wrong."""


@dataclass(slots=True)
class Group:
    """Cases that fail in the same way."""

    first: Evaluation
    """The one that is shown."""
    cases: list[str]
    """Names of all."""


def of_evaluations(evaluations: Sequence[Evaluation], root: Path) -> str:
    """Failing cases, those that share status and reason together; how many pass.

    Args:
        evaluations: of one kernel.
        root: folder that paths are relative to.
    """
    if not evaluations:
        return ""
    bad = [one for one in evaluations if one.verdict.status.outcome in ("fail", "error")]
    skipped = sum(one.verdict.status is Status.SKIPPED for one in evaluations)
    head = f"{len(evaluations) - len(bad) - skipped} of {counted(len(evaluations), 'case passes', 'cases pass')}, {len(bad)} fail"
    head += f", {skipped} are skipped." if skipped else "."
    groups = _grouped(bad)
    parts = [_group(group, root) for group in groups[:_MOST_GROUPS]]
    if len(groups) > _MOST_GROUPS:
        others = sorted(
            {
                f"{one.first.verdict.status.value} {one.first.verdict.reason.value}"
                for one in groups[_MOST_GROUPS:]
            }
        )
        parts.append(f"And in other ways: {', '.join(others)}.")
    kept: list[str] = []
    for part in parts:
        if sum(map(len, kept)) + len(part) > MOST_NBYTES and kept:
            kept.append("Further failures are left out: mend these first.")
            break
        kept.append(part)
    return "\n".join([head, *kept])


def _grouped(bad: Sequence[Evaluation]) -> list[Group]:
    found: dict[tuple[str, ...], Group] = {}
    for one in bad:
        checks = one.correctness.checks if one.correctness else ()
        wrong = next((check for check in checks if not check.passed), None)
        kind = wrong.map.split("\n", 1)[0].split(" ")[0] if wrong else ""
        key = (one.verdict.status.value, one.verdict.reason.value, kind)
        found.setdefault(key, Group(one, [])).cases.append(one.case.name)
    return sorted(
        found.values(),
        key=lambda group: (_HINTS.get(group.first.verdict.status, 9), -len(group.cases), group.cases[0]),
    )


def _group(group: Group, root: Path) -> str:
    it = group.first
    names = ", ".join(blocks.one_line(name, 120) for name in group.cases[:_MOST_CASES])
    more = f" and {len(group.cases) - _MOST_CASES} more" if len(group.cases) > _MOST_CASES else ""
    title = f"{it.verdict.status.value} ({it.verdict.reason.value}) in {counted(len(group.cases), 'case')}"
    lines = [f"cases: {names}{more}", f"of the first: {blocks.middle_out(it.verdict.message, _MOST_MESSAGE)}"]
    if it.correctness is not None:
        lines += [line for check in it.correctness.checks if not check.passed for line in _check(check)][:24]
        lines += [_probe(probe) for probe in it.correctness.tripped]
        held = [
            f"{one.rule} on {one.inputs}"
            for one in it.correctness.checks
            if one.passed and one.rule != "form"
        ]
        if held:
            lines.append(f"held: {', '.join(held[:8])}")
    # What a compiler printed is in the message.
    if it.output.strip() and it.verdict.status is not Status.BUILD_ERROR:
        lines.append(f"it printed:\n{blocks.tail(it.output.strip(), _MOST_OUTPUT)}")
    return blocks.data(title, blocks.without_paths("\n".join(lines), root))


def _check(check: Check) -> list[str]:
    lines = [
        (
            f"check {check.rule} on inputs `{check.inputs}`: {check.reason.value}, {check.wrong} of "
            f"{counted(check.compared, 'element')} wrong"
        )
    ]
    if check.share is not None:
        lines[0] += f", error {check.share:.3g} times what is allowed"
    if check.worst is not None:
        worst = check.worst
        lines.append(
            f"  worst: output {worst.output} at {list(worst.index)}: expected {worst.expected}, got "
            f"{worst.got}, allowed ±{worst.tolerance:.3g}"
        )
    if check.map:
        lines += [f"  {line}" for line in blocks.head(check.map, _MOST_MAP).splitlines()]
    elif check.message:
        lines.append(f"  {blocks.one_line(check.message, 400)}")
    return lines


def _probe(probe: Probe) -> str:
    return f"probe {probe.name} tripped ({probe.reason.value}): {blocks.middle_out(probe.message, 800)}"


def of_attempt(attempt: Attempt, files: Sequence[str], root: Path) -> str:
    """All that is known of a failed attempt.

    Args:
        attempt: the last one.
        files: paths of the sources.
        root: folder that paths are relative to.
    """
    head = f"Attempt {attempt.number} ended as `{attempt.outcome}` ({blocks.code(attempt.reason)})."
    parts = [head, _why(attempt, root)]
    if attempt.findings:
        listed = [
            f"{one.file}:{one.line}: {one.code}: {blocks.one_line(one.message, 300)}"
            for one in attempt.findings[:12]
        ]
        parts.append(
            blocks.data("What the static check refused", blocks.without_paths("\n".join(listed), root))
        )
    if attempt.log:
        parts.append(blocks.data("What the compiler said", of_log(attempt.log, files, root)))
    trials = [
        trial for trial in attempt.trials if any(not _passes(one) for one in trial.evaluations)
    ] or list(attempt.trials)
    if trials:
        last = trials[-1]
        if last.stage == "acceptance":
            parts.append(
                "The first check passed; this was found on fresh inputs in a fresh process, so it is "
                "wrong for other numbers or at times, not for the "
                "recorded ones alone."
            )
        parts.append(of_evaluations(last.evaluations, root))
        if last.notes:
            parts.append(
                blocks.data(
                    "Notes", blocks.without_paths("\n".join(one[:300] for one in last.notes[:8]), root)
                )
            )
    return "\n".join(part for part in parts if part)


def _passes(evaluation: Evaluation) -> bool:
    return evaluation.verdict.status.outcome in ("pass", "skip")


def _why(attempt: Attempt, root: Path) -> str:
    message = blocks.middle_out(blocks.without_paths(attempt.message, root), _MOST_MESSAGE)
    return blocks.data("Why", message) if message.strip() else ""


def of_log(log: str, files: Sequence[str], root: Path) -> str:
    """A compiler's output: its first errors with what explains them; its end where no error was found in it."""
    log = blocks.clean(log[:_LONGEST_LOG])
    errors, text = diagnostics.summarize(log, [str(root / file) for file in files], "")
    if errors > diagnostics.SHOWN_ERRORS:
        text += f"\n… {counted(errors, 'error')} in all; the first ones are shown"
    text = blocks.without_paths(text or blocks.tail(log, _MOST_LOG), root)
    return blocks.head(text, _MOST_LOG)
