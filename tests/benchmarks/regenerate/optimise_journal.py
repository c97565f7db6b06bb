"""A search in a page: what was asked, what came of it, what profilers found; for readers who have not the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optimise_outcome import told
from optimise_runs import of_policy

COLUMNS = (
    "candidate",
    "round",
    "asked",
    "from",
    "profiles shown",
    "methods named",
    "outcome",
    "time / incumbent's",
    "s",
)


def write(work: Path, policies: Sequence[str], folder: Path, found: Mapping[str, Any]) -> None:
    """A file a kernel and policy, `KERNEL-POLICY.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    for policy in policies:
        journal = of_policy(work, policy)
        for target in journal.record.targets if journal is not None else ():
            assert journal is not None
            row = next(
                one for one in found["rows"] if one["kernel"] == target.kernel and one["policy"] == policy
            )
            incumbent = told(journal.evidence(target, 0))
            text = _page(row, journal.record.id, incumbent)
            (folder / f"{target.kernel}-{policy}.md").write_text(text, encoding="utf-8")


def _page(row: Mapping[str, Any], run: str, incumbent: Mapping[str, Any] | None) -> str:
    ended = row["state"] + (f": {row['why']}" if row["why"] else "")
    lines = [f"# {row['kernel']} ({row['implementation']}), {row['policy']}", "", f"Run {run}; {ended}.", ""]
    lines += [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    lines += [f"| {' | '.join(_cells(one))} |" for one in row["attempts"]]
    asked = [f"- {one['number']}: {one['variant']}" for one in row["attempts"] if one["variant"]]
    lines += ["", "Asked to differ:", "", *asked] if asked else []
    said = [f"- {one['number']}: {one['message']}" for one in row["attempts"] if one["message"]]
    lines += ["", "What the gate said:", "", *said] if said else []
    lines += _profile("the incumbent", incumbent)
    for one in row["attempts"]:
        lines += _profile(f"candidate {one['number']}", one["evidence"])
    if row["ablations"]:
        lines += ["", "Without one method:", ""]
        lines += [_ablation(one) for one in row["ablations"]]
    return "\n".join(lines) + "\n"


def _cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    outcome = one["outcome"] if one["reason"] in ("", "ok") else f"{one['outcome']} ({one['reason']})"
    seconds = ", ".join(f"{stage} {time:g}" for stage, time in one["seconds"].items())
    return (
        str(one["number"]), str(one["round"]), f"{one['kind']} {one['left_out']}".rstrip(), str(one["parent"]),
        "yes" if one["shows_evidence"] else "no", ", ".join(one["methods"]) or "–", outcome,
        "–" if one["time_ratio"] is None else f"{one['time_ratio']:.4g}", seconds or "–",
    )  # fmt: skip


def _profile(what: str, evidence: Mapping[str, Any] | None) -> list[str]:
    if evidence is None:
        return []
    missing = [f"- not available: {line.partition(chr(10))[0]}" for line in evidence["degraded"]]
    return [
        "",
        f"What profilers found in {what}:",
        "",
        *(f"- {line}" for line in evidence["lines"]),
        *missing,
    ]


def _ablation(one: Mapping[str, Any]) -> str:
    differs = {None: "unknown", True: "yes", False: "no"}[one["differs"]]
    ratio = (
        "no time"
        if one["ratio_to_champion"] is None
        else f"{one['ratio_to_champion']:.4g} times its champion's time"
    )
    changes = ", ".join(one.get("changes", ())) or one.get("why", "")
    return (
        f"- {one['attempt']}, {one['champion']} without {one['method']}: built {'yes' if one['built'] else 'no'}, "
        f"passed {'yes' if one['passed'] else 'no'}, {ratio}; machine code differs: {differs} ({changes})"
    )
