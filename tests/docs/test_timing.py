"""timing.md: its statuses, reasons, settings and figures are ours."""

from __future__ import annotations

import re
from dataclasses import fields, replace

from tables import document, rows, sections
from timings import RULE, blocks, compared, measured

from pytest_cgins.config import TimingGate
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.report.times import LISTED_FALSE

TEXT = document("timing.md")


def test_statuses_and_outcomes_are_those_of_the_code() -> None:
    """Each row has a status with a reason that exist, and what pytest makes of it."""
    for first, outcome, _ in rows(sections(TEXT)["How a verdict is made"]):
        found = re.fullmatch(r"`([A-Z_]+)` \(`([a-z-]+)`\)", first)
        assert found is not None, first
        assert Status(found[1]).outcome == outcome
        assert Reason(found[2])


def test_settings_exist() -> None:
    """What stands in `gate: {…}` is a key of the gate."""
    keys = set(re.findall(r"gate: \{(\w+):", TEXT)) - {"profile"}
    assert keys
    assert keys <= {field.name for field in fields(TimingGate)}
    assert f"at most {LISTED_FALSE:.0%} are expected to be noise" in " ".join(TEXT.split())


def test_the_failure_is_what_the_gate_prints() -> None:
    """The example is a message of these very blocks."""
    from pytest_cgins.core.verdict import Verdict
    from pytest_cgins.gate.timing_verdict import decide_timing

    slow = compared("base", blocks(0.08))
    again = compared("base", blocks(0.08, seed=2), rule=replace(RULE, tests=1))
    verdict = decide_timing(
        Verdict(status=Status.PASSED, reason=Reason.OK, message="", numbers={}),
        measured(slow, kernel_ns=12_345.0, base_ns=11_400.0, again=[again]),
        base_state="timed",
        base_note="",
        gate=TimingGate(),
        base_label="1a2b3c4d5e (merge-base with main)",
        kernel="scale",
    )
    head, _, rest = verdict.message.partition("\n")
    assert f"SLOWER (slower-than-base): {head}\n\n{rest}\n" in TEXT
