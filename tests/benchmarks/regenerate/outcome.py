"""What became of the benchmark's targets, from the journals alone."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from pytest_cgins.core import documents
from pytest_cgins.regenerate import run_setup, run_status
from pytest_cgins.regenerate.attempt import Attempt, Target, Trial
from pytest_cgins.regenerate.journal.journal import Journal, runs_in

LANGUAGES = {
    "cpp": "C++",
    "cuda": "CUDA C++",
    "nvrtc": "CUDA C++ (NVRTC)",
    "cuda-device": "CUDA C++ (NVRTC)",
    "triton": "Triton",
}
COLUMNS = (
    "kernel", "language", "what", "outcome", "attempts", "outcomes of the attempts", "tokens asked", "answered",
    "gate s", "worst error", "speed vs torch",
)  # fmt: skip


def journals(runs: Path) -> tuple[Journal, ...]:
    """All runs, oldest first."""
    return tuple(Journal.read_only(folder) for folder in reversed(runs_in(runs)))


def prompts(journal: Journal) -> tuple[Path, ...]:
    """Prompts of a run that are asked and not taken up yet, answered or not."""
    folder = run_setup.answers_folder(journal)
    asked = [
        run_status.open_request(journal, one) for one in journal.record.targets if journal.result(one) is None
    ]
    return tuple(folder / one.id / "prompt.md" for one in asked if one is not None) if folder else ()


def document(runs: Path, kinds: Mapping[str, str]) -> dict[str, Any]:
    """All that is told, ready for JSON.

    Args:
        runs: folder of the journals.
        kinds: kind of bug by name of the target.
    """
    found = journals(runs)
    rows = [_row(journal, target, kinds) for journal in found for target in journal.record.targets]
    trials = [
        trial
        for journal in found
        for target in journal.record.targets
        for trial in _trials(journal.attempts(target))
    ]
    described = {one.device: documents.dump_python(one) for trial in trials for one in trial.environments}
    return {
        "cgins": sorted({journal.record.cgins for journal in found}),
        "environments": list(described.values()),
        "runs": [
            {
                "id": journal.record.id,
                "created_at": journal.record.created_at,
                "seed": journal.record.seed,
                "sandbox": journal.record.sandbox,
                "timing": journal.record.timing,
                "seconds": round(journal.seconds, 1),
            }
            for journal in found
        ],
        "targets": rows,
        "totals": _totals(rows),
    }


def _row(journal: Journal, target: Target, kinds: Mapping[str, str]) -> dict[str, Any]:
    result, attempts = journal.result(target), journal.attempts(target)
    spent = run_status.spent_on(journal, target)
    last = next(reversed(_trials(attempts)), None)
    return {
        "kernel": target.kernel,
        "device": target.device,
        "implementation": target.implementation,
        "op": target.op,
        "goal": target.goal,
        "bug": kinds.get(target.name, ""),
        "state": result.state if result else "waiting",
        "why": result.why if result else "",
        "attempts": [_attempt(one) for one in attempts],
        "models": sorted(
            {
                answer.model
                for request, answer in journal.answered()
                if request.id.startswith(f"{target.name}/")
            }
        ),
        "prompt_tokens": spent.prompt_tokens,
        "answer_tokens": spent.answer_tokens,
        "gate_seconds": round(sum(one.seconds for one in attempts), 1),
        "worst_error": _worst_error(last),
        "speed_vs_torch": _speed(last),
        "cases": len(last.evaluations) if last else 0,
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "outcome": attempt.outcome,
        "reason": attempt.reason,
        "message": attempt.message,
        "seconds": round(attempt.seconds, 1),
        "trials": [
            {"stage": one.stage, "seconds": round(one.seconds, 1), "sanitized": one.sanitized}
            for one in attempt.trials
        ],
    }


def _trials(attempts: Iterable[Attempt]) -> list[Trial]:
    return [trial for attempt in attempts for trial in attempt.trials]


def _worst_error(trial: Trial | None) -> float | None:
    """Greatest error as a share of what is allowed, of the last trial."""
    shares = [one.correctness.share for one in trial.evaluations if one.correctness] if trial else []
    return max((share for share in shares if share is not None), default=None)


def _speed(trial: Trial | None) -> float | None:
    """Median over the cases of the last trial."""
    found = (
        [one.measurement.speedup_vs_torch for one in trial.evaluations if one.measurement] if trial else []
    )
    return median(found) if found else None


def _totals(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        goal: {
            "targets": len(members),
            "accepted": sum(row["state"] == "accepted" for row in members),
            "at_first_attempt": sum(
                row["state"] == "accepted" and len(row["attempts"]) == 1 for row in members
            ),
            "attempts": sum(len(row["attempts"]) for row in members),
            "prompt_tokens": sum(row["prompt_tokens"] for row in members),
            "answer_tokens": sum(row["answer_tokens"] for row in members),
            "gate_seconds": round(sum(row["gate_seconds"] for row in members), 1),
        }
        for goal in ("repair", "generate")
        if (members := [row for row in rows if row["goal"] == goal])
    }


def markdown(found: Mapping[str, Any]) -> str:
    """The table, with what it was made on above and totals below."""
    out = io.StringIO()
    for one in found["environments"]:
        versions = ", ".join(
            f"{key} {one[key]}" for key in ("torch", "cuda", "driver", "triton", "python") if one[key]
        )
        print(f"{one['device']}: {one['device_name']}, {versions}\n", file=out)
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", file=out)
    for row in found["targets"]:
        print(f"| {' | '.join(_cells(row))} |", file=out)
    for goal, total in found["totals"].items():
        print(
            f"\n{goal}: {total['accepted']} of {total['targets']} accepted, {total['at_first_attempt']} at the first attempt; "
            f"{total['attempts']} attempts, {total['prompt_tokens']:,} tokens asked and {total['answer_tokens']:,} answered, "
            f"{total['gate_seconds']:.0f} s in the gate",
            file=out,
        )
    return out.getvalue()


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    outcomes = (
        one["outcome"] if one["reason"] in ("", "ok") else f"{one['outcome']} ({one['reason']})"
        for one in row["attempts"]
    )
    return (
        row["kernel"],
        LANGUAGES.get(row["implementation"], row["implementation"]),
        row["bug"] or row["op"],
        row["state"],
        str(len(row["attempts"])),
        ", ".join(outcomes),
        f"{row['prompt_tokens']:,}",
        f"{row['answer_tokens']:,}",
        f"{row['gate_seconds']:.0f}",
        "–" if row["worst_error"] is None else f"{row['worst_error']:.3g}",
        "–" if row["speed_vs_torch"] is None else f"{row['speed_vs_torch']:.3g}×",
    )
