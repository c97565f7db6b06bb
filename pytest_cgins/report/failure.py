"""The message of one failed case: what is wrong, where, and how to see it again."""

from __future__ import annotations

import shlex

from pytest_cgins.core.call_text import case_line
from pytest_cgins.core.number_text import NO_TOLERANCE, ratio
from pytest_cgins.core.session_report import Compilation, Evaluation, SessionReport
from pytest_cgins.core.text import counted, inputs_phrase
from pytest_cgins.core.verdict import Check, Reason, Status
from pytest_cgins.report import summary
from pytest_cgins.report.escape import cut, visible

OUTPUT_LINES = 40
"""Lines of what the kernel or its compiler printed that a message quotes, from the end."""
LINE_LENGTH = 200
"""Characters of each: Python's list of extension modules after a crash alone is a screen long."""


def message(evaluation: Evaluation, *, command: str, in_common: str = "") -> str:
    """All that a person needs to start looking for the error.

    `command` runs the case again with the same inputs; `in_common` is what it shares with the kernel's other failing cases.
    """
    parts = [headline(evaluation)]
    rest = evaluation.verdict.message.partition("\n")[2]
    parts += [rest] if rest else []
    checks = evaluation.correctness.checks if evaluation.correctness is not None else ()
    failed = [check for check in checks if not check.passed]
    if failed:
        parts.append(_place(failed[0]))
        parts += ["\n".join(_line(check) for check in failed[1:])] if failed[1:] else []
    if evaluation.output.strip() and not _says_output(evaluation):
        parts.append(_quoted_output(evaluation.output))
    shared = [f"common  {visible(in_common)}"] if in_common else []
    call = f"call    {visible(case_line(evaluation.case))}"
    parts.append("\n".join([call, *shared, *_changed(evaluation), f"again   {command}"]))
    return "\n\n".join(parts)


def headline(failure: Evaluation | Compilation) -> str:
    """One line: status, reason code, and the first line of the verdict's message."""
    verdict = failure.verdict
    first = verdict.message.partition("\n")[0]
    return f"{verdict.status.value} ({verdict.reason.value}){': ' if first else ''}{first}"


def command(evaluation: Evaluation, report: SessionReport) -> str:
    """Shell command that runs a case again on the same inputs, in the folder where the session ran."""
    options = ["--cgins-strict"] * report.strict
    timing = evaluation.measurement
    if timing is not None and timing.base_revision and evaluation.verdict.status in _ABOUT_TIME:
        options.append(f"--cgins-baseline={timing.base_revision}")
    # Runs that were merged had seeds of their own.
    seed = report.seed if evaluation.tested is None else evaluation.tested.seed
    node = node_id(summary.file(evaluation), evaluation.case.name)
    return shlex.join(["pytest", "--cgins", f"--cgins-seed={seed}", *options, node])


def node_id(config: str, name: str) -> str:
    """What pytest selects a case or build by; a path that began with a dash would be an option."""
    return f"{'./' if config.startswith('-') else ''}{config}::{name}"


_ABOUT_TIME = (Status.SLOWER, Status.BELOW_FLOOR, Status.INCONCLUSIVE)


def _changed(evaluation: Evaluation) -> list[str]:
    """Where to look for what made it slower: the sources of both revisions, and what was built of today's."""
    timing = evaluation.measurement
    if evaluation.verdict.status is not Status.SLOWER or timing is None or not timing.base_revision:
        return []
    tested = evaluation.tested
    built = [f"tested  sources {tested.sources[:12]}, build {tested.build[:12]}"] if tested else []
    return [*built, f"look    git diff {timing.base_revision[:10]}"]


def _says_output(evaluation: Evaluation) -> bool:
    """Whether the message has the output already; of a compiler it has the first errors and the log's path."""
    verdict = evaluation.verdict
    return verdict.reason is Reason.COMPILER or evaluation.output.strip() in verdict.message


def _line(check: Check) -> str:
    """One failed comparison: which, why, how much is wrong and how far out it is."""
    told = f"{check.rule} rule on {inputs_phrase(check.inputs)}: {check.reason.value}"
    if check.compared:
        told += f"; {check.wrong:,} of {counted(check.compared, 'element', grouped=True)} wrong"
        if check.share is not None and check.share < NO_TOLERANCE:
            told += f", error {ratio(check.share)} times the tolerance"
    return told


def _place(check: Check) -> str:
    """The first failed comparison at length; those after it mostly show the same place again."""
    lines = [_line(check)]
    if check.worst is not None:
        worst = check.worst
        lines += [
            f"worst   output {worst.output} at {list(worst.index)}",
            f"        expected {worst.expected}",
            f"        got      {worst.got}",
            f"        allowed  ±{worst.tolerance:.3g}",
        ]
    if check.map:
        lines.append(check.map)
    return "\n".join(lines)


def _quoted_output(output: str) -> str:
    lines = output.rstrip().splitlines()
    left_out = len(lines) - OUTPUT_LINES
    head = [f"… {counted(left_out, 'earlier line')}"] if left_out > 0 else []
    return "\n".join(["output:", *head, *(f"  | {cut(line, LINE_LENGTH)}" for line in lines[-OUTPUT_LINES:])])
