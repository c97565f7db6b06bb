"""What became of kernels that were to become faster, by kernel and policy: from journals and gates alone."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from machine_code import MachineCode
from optimise_runs import gated, of_policy

from pytest_cgins.core import documents
from pytest_cgins.core.measurement import Measurement
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.regenerate import run_status
from pytest_cgins.regenerate.attempt import Attempt, Target
from pytest_cgins.regenerate.journal.journal import Journal
from pytest_cgins.regenerate.search.profile_figures import Evidence
from pytest_cgins.regenerate.targets import is_of

HEADLINE = (
    "kernel", "language", "policy", "candidates", "right", "ended", "fastest candidate", "winner", "base/winner", "torch/winner",
    "compile/winner", "methods of the winner",
)  # fmt: skip
TIMES = (
    "case", "policy", "base µs", "winner µs", "base/winner (95 %)", "torch eager/winner", "torch.compile/winner",
    "share of peak before", "after",
)  # fmt: skip
DECISIONS = ("policy", "kernel", "what was asked, in order: kind < parent, # with profiles; * was faster")
CODE = (
    "kernel",
    "policy",
    "candidate",
    "without",
    "built",
    "passed",
    "time to the champion's",
    "SASS differs",
)


def document(work: Path, policies: Sequence[str], *, look: bool) -> dict[str, Any]:
    """All that is told, ready for JSON.

    Args:
        work: the benchmark's folder.
        policies: in order.
        look: whether machine code is disassembled that was not yet.
    """
    before = gated(work / "gate.json")
    code = MachineCode(work)
    rows, runs = [], []
    for policy in policies:
        journal = of_policy(work, policy)
        if journal is None:
            continue
        report = work / f"last-{policy}.json"
        last = gated(report).evaluations if report.exists() else ()
        runs.append({
            "id": journal.record.id,
            "policy": policy,
            "created_at": journal.record.created_at,
            "cgins": journal.record.cgins,
            "sandbox": journal.record.sandbox,
            "seconds": round(journal.seconds, 1),
        })  # fmt: skip
        for target in journal.record.targets:
            row = _row(journal, target, before.evaluations, last)
            row["ablations"] = code.ablations(journal, target, work / policy, look=look)
            rows.append(row)
    return {
        "environments": [documents.dump_python(one) for one in before.environments],
        "runs": runs,
        "rows": rows,
        "policies": {policy: _totals(rows, policy) for policy in policies},
    }


def _row(
    journal: Journal, target: Target, before: Iterable[Evaluation], last: Iterable[Evaluation]
) -> dict[str, Any]:
    result, attempts = journal.result(target), journal.attempts(target)
    winner = next((one for one in attempts if one.outcome == "accepted"), None)
    spent = run_status.spent_on(journal, target)
    cases = [_case(one, winner, last) for one in before if is_of(one.case, target)]
    return {
        "kernel": target.kernel,
        "implementation": target.implementation,
        "policy": journal.record.policy,
        "state": result.state if result else "waiting",
        "why": result.why if result else "",
        "candidates": len(attempts),
        "right": sum(one.is_right for one in attempts),
        "winner": winner.number if winner else None,
        "methods": list(winner.methods) if winner else [],
        "sanitized": any(one.sanitized for one in winner.trials) if winner else False,
        "cases": cases,
        "speedup_vs_base": _mean(one["speedup_vs_base"] for one in cases),
        "speedup_vs_torch": _mean(one["speedup_vs_torch"] for one in cases),
        "speedup_vs_compile": _mean(one["speedup_vs_compile"] for one in cases),
        "attempts": [attempt(journal, target, one) for one in attempts],
        "prompt_tokens": spent.prompt_tokens,
        "answer_tokens": spent.answer_tokens,
        "gate_seconds": round(sum(one.seconds for one in attempts), 1),
    }


def attempt(journal: Journal, target: Target, one: Attempt) -> dict[str, Any]:
    """One candidate: what was asked, what came of it, and what profilers found in it."""
    ask, evidence = one.ask, journal.evidence(target, one.number)
    return {
        "number": one.number,
        "round": ask.round if ask else 0,
        "branch": ask.branch if ask else 0,
        "kind": ask.kind if ask else "",
        "parent": ask.parent if ask else 0,
        "shows_evidence": bool(ask and ask.shows_evidence),
        "shown": list(ask.shown) if ask else [],
        "variant": ask.variant if ask else "",
        "left_out": ask.method if ask else "",
        "methods": list(one.methods),
        "outcome": one.outcome,
        "reason": one.reason,
        "message": one.message.partition("\n")[0][:300],
        "time_ratio": one.time_ratio,
        "beats_champion": one.beats_champion,
        "seconds": {trial.stage: round(trial.seconds, 1) for trial in one.trials},
        "evidence": told(evidence),
    }


def told(evidence: Evidence | None) -> dict[str, Any] | None:
    """What profilers found, and what could not be had."""
    if evidence is None:
        return None
    return {
        "case": evidence.case,
        "lines": list(evidence.lines),
        "near_peak": evidence.near_peak,
        "degraded": list(evidence.degraded),
    }


def _case(before: Evaluation, winner: Attempt | None, last: Iterable[Evaluation]) -> dict[str, Any]:
    """Times of one case. Those of the last gate, where it was; else of the acceptance, with torch.compile of the first."""
    name = before.case.name
    first = before.measurement
    trials = [trial for trial in winner.trials if trial.stage == "acceptance"] if winner else []
    accepted = next((one for trial in trials for one in trial.evaluations if one.case.name == name), None)
    gated_last = next((one for one in last if one.case.name == name), None)
    now = next((one.measurement for one in (gated_last, accepted) if one and one.measurement), None)
    told: dict[str, Any] = {
        "case": name,
        "before": _times(first),
        "after": _times(now),
        "measured": "last gate" if gated_last and gated_last.measurement else "acceptance" if now else "",
        "last_status": gated_last.verdict.status.value if gated_last else "",
        "speedup_vs_base": None,
        "interval_vs_base": None,
        "speedup_vs_torch": None,
        "interval_vs_torch": None,
        "speedup_vs_compile": None,
        "compile_in_same_process": None,
    }
    against = now.against("base") if now else None
    if now is None:
        return told
    told["speedup_vs_torch"], told["interval_vs_torch"] = (
        now.speedup_vs_torch,
        [now.speedup_low, now.speedup_high],
    )
    if against is not None:
        told["speedup_vs_base"] = 1 / against.ratio
        told["interval_vs_base"] = [1 / against.ratio_high, 1 / against.ratio_low]
    if now.speedup_vs_compile is not None:
        told["speedup_vs_compile"], told["compile_in_same_process"] = now.speedup_vs_compile, True
    elif first is not None and first.compiled is not None:
        compiled = first.compiled.median_ns_per_call
        told["speedup_vs_compile"] = compiled / now.kernel.median_ns_per_call
        told["compile_in_same_process"] = False
    return told


def _times(measured: Measurement | None) -> dict[str, Any] | None:
    if measured is None:
        return None
    arms = {
        "kernel": measured.kernel,
        "torch": measured.torch,
        "base": measured.base,
        "compile": measured.compiled,
    }
    roofline = measured.roofline
    return {
        "method": measured.method,
        "cache": measured.cache,
        "median_us": {name: arm.median_ns_per_call / 1e3 for name, arm in arms.items() if arm is not None},
        "share_of_bandwidth": roofline.share_of_bandwidth if roofline else None,
        "share_of_compute": roofline.share_of_compute if roofline and roofline.flops else None,
        "speedup_vs_torch": measured.speedup_vs_torch,
        "speedup_vs_compile": measured.speedup_vs_compile,
        "notes": list(measured.notes),
    }


def _mean(values: Iterable[float | None]) -> float | None:
    """Geometric; None if one is not known."""
    found = list(values)
    known = [math.log(one) for one in found if one is not None]
    return math.exp(math.fsum(known) / len(known)) if known and len(known) == len(found) else None


def _totals(rows: Iterable[Mapping[str, Any]], policy: str) -> dict[str, Any]:
    mine = [row for row in rows if row["policy"] == policy]
    attempts = [one for row in mine for one in row["attempts"]]
    kinds = sorted({one["kind"] for one in attempts})
    return {
        "accepted": sum(row["state"] == "accepted" for row in mine),
        "kernels": len(mine),
        "candidates": len(attempts),
        "right": sum(row["right"] for row in mine),
        "by_kind": {kind: sum(one["kind"] == kind for one in attempts) for kind in kinds},
        "with_profiles": sum(one["shows_evidence"] for one in attempts),
        "from_other_than_last": sum(one["parent"] != one["number"] - 1 for one in attempts),
        "prompt_tokens": sum(row["prompt_tokens"] for row in mine),
        "answer_tokens": sum(row["answer_tokens"] for row in mine),
        "gate_seconds": round(sum(row["gate_seconds"] for row in mine), 1),
    }


def markdown(found: Mapping[str, Any]) -> str:
    """All tables."""
    out = io.StringIO()
    for one in found["environments"]:
        versions = ", ".join(
            f"{key} {one[key]}" for key in ("torch", "cuda", "driver", "triton", "python") if one[key]
        )
        print(f"{one['device']}: {one['device_name']}, {versions}\n", file=out)
    rows = sorted(found["rows"], key=lambda row: row["kernel"])
    _table(out, "What came of it", HEADLINE, [_headline(row) for row in rows])
    _table(out, "Times", TIMES, [_of_case(row, case) for row in rows for case in row["cases"]])
    decisions = sorted(rows, key=lambda row: list(found["policies"]).index(row["policy"]))
    _table(out, "What each policy decided", DECISIONS, [_decisions(row) for row in decisions])
    for policy, total in found["policies"].items():
        kinds = ", ".join(f"{count} {kind}" for kind, count in total["by_kind"].items())
        print(
            f"- {policy}: {total['accepted']} of {total['kernels']} accepted; {total['candidates']} candidates ({kinds}), "
            f"{total['right']} right, {total['with_profiles']} asked with profiles; {total['prompt_tokens']:,} tokens asked, "
            f"{total['answer_tokens']:,} answered, {total['gate_seconds']:.0f} s in the gate",
            file=out,
        )
    ablated = [_ablation(row, one) for row in rows for one in row["ablations"]]
    if ablated:
        _table(out, "Sources without one method", CODE, ablated)
    return out.getvalue()


def _table(out: io.StringIO, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    print(f"\n## {title}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}", file=out)
    for row in rows:
        print(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |", file=out)
    print(file=out)


def _headline(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        row["kernel"], row["implementation"], row["policy"], str(row["candidates"]), str(row["right"]),
        row["state"] if not row["why"] else f"{row['state']}: {row['why']}",
        _fastest(row),
        "–" if row["winner"] is None else str(row["winner"]),
        _times_faster(row["speedup_vs_base"]), _times_faster(row["speedup_vs_torch"]),
        _times_faster(row["speedup_vs_compile"]), ", ".join(row["methods"]) or "–",
    )  # fmt: skip


def _fastest(row: Mapping[str, Any]) -> str:
    """The least time of a right candidate over the incumbent's, by the times that the search took."""
    right = [one for one in row["attempts"] if one["time_ratio"] is not None]
    least = min(right, key=lambda one: one["time_ratio"], default=None)
    return "–" if least is None else f"{least['number']}: {_times_faster(1 / least['time_ratio'])}"


def _of_case(row: Mapping[str, Any], case: Mapping[str, Any]) -> tuple[str, ...]:
    before, after = case["before"], case["after"]
    interval = case["interval_vs_base"]
    beside = case["speedup_vs_compile"] is not None and not case["compile_in_same_process"]
    base = (after or before or {}).get("median_us", {})
    return (
        case["case"], row["policy"],
        _number(base.get("base", base.get("kernel") if after is None else None)),
        _number(base.get("kernel") if after else None),
        _times_faster(case["speedup_vs_base"]) + (f" ({interval[0]:.3g} to {interval[1]:.3g})" if interval else ""),
        _times_faster(case["speedup_vs_torch"]),
        _times_faster(case["speedup_vs_compile"]) + (" (other process)" if beside else ""),
        _peak(before), _peak(after),
    )  # fmt: skip


def _decisions(row: Mapping[str, Any]) -> tuple[str, ...]:
    rounds: dict[int, list[str]] = {}
    for one in row["attempts"]:
        what = f"{one['kind']} < {one['parent']}{'#' if one['shows_evidence'] else ''}"
        if one["left_out"]:
            what += f" without {one['left_out']}"
        right = f" {one['time_ratio']:.3g}" if one["time_ratio"] is not None else f" {one['outcome']}"
        rounds.setdefault(one["round"], []).append(
            f"{one['number']}: {what}{right}{'*' if one['beats_champion'] else ''}"
        )
    words = "; ".join(f"round {number}: {', '.join(asked)}" for number, asked in sorted(rounds.items()))
    return row["policy"], row["kernel"], words or "–"


def _ablation(row: Mapping[str, Any], one: Mapping[str, Any]) -> tuple[str, ...]:
    differs = one["differs"]
    said = (
        f"unknown: {one['why']}"
        if differs is None
        else f"yes: {', '.join(one['changes'])}"
        if differs
        else "no"
    )
    return (
        row["kernel"], row["policy"], f"{one['attempt']} < {one['champion']}", one["method"], _word(one["built"]),
        _word(one["passed"]), _number(one["ratio_to_champion"]), said,
    )  # fmt: skip


def _peak(times: Mapping[str, Any] | None) -> str:
    if times is None or times["share_of_bandwidth"] is None:
        return "–"
    compute = times["share_of_compute"]
    return f"memory {times['share_of_bandwidth']:.0%}" + (
        "" if compute is None else f", compute {compute:.0%}"
    )


def _word(yes: bool) -> str:
    return "yes" if yes else "no"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _times_faster(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}×"
