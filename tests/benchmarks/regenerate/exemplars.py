"""What an exemplar is worth: the first prompt of a new C++ kernel with a whole kernel of another op in it, and without.

    python tests/benchmarks/regenerate/exemplars.py prompts --work DIR [--seed N]
    python tests/benchmarks/regenerate/exemplars.py score --work DIR [--json FILE] [--markdown FILE]

`prompts` records calls of six ops, and writes what `cgins generate` would send for each, twice: as it is, and rendered
without the exemplar. Both lie shuffled in DIR/prompts/NNN/prompt.md; DIR/key.json says which is which. Somebody who sees
a prompt alone writes `answer.md` beside it. `score` takes each answer through `cgins generate`, one attempt without
times, and those that were accepted once more with times against torch. It tells of those without an answer, too.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from project import REPOSITORY

sys.path.insert(0, str(REPOSITORY))

import torch
from torch.nn import functional

import pytest_cgins
from pytest_cgins.app.cli import main as cgins
from pytest_cgins.core import documents
from pytest_cgins.regenerate.journal.journal import Journal, runs_in
from pytest_cgins.regenerate.prompts import exemplars
from pytest_cgins.regenerate.provider.base import estimated_tokens
from pytest_cgins.timing.environment import describe

OPS = (
    "torch.nn.functional.layer_norm",
    "torch.nn.functional.softmax",
    "torch.nn.functional.cross_entropy",
    "torch.nn.functional.conv1d",
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.cumsum",
)
ARMS = ("with", "without")
COLUMNS = ("op", "exemplar", "prompt tokens", "outcome", "reason", "speed against torch")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("phase", choices=("prompts", "score"))
    parser.add_argument("--work", type=Path, required=True, metavar="DIR")
    parser.add_argument("--seed", type=int, default=27, help="of inputs, and of the order of the prompts")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    work: Path = arguments.work.resolve()
    if arguments.phase == "prompts":
        write_prompts(work, arguments.seed)
        return 0
    key = json.loads((work / "key.json").read_text())
    rows = [row for arm in ARMS for row in scored(work, arm, key)]
    found = {
        "seed": key["seed"],
        "environment": documents.dump_python(describe("cpu")),
        "totals": {arm: totals([row for row in rows if row["exemplar"] == arm]) for arm in ARMS},
        "answers": rows,
    }
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    if arguments.markdown is not None:
        arguments.markdown.write_text(markdown(found))
    print(markdown(found))
    return 0


def write_prompts(work: Path, seed: int) -> None:
    """The project, and its prompts in both arms, shuffled."""
    project = work / "project"
    with pytest_cgins.record(project / "traces/calls", ops=list(OPS)):
        run_calls(seed)
    (project / "cgins.yaml").write_text("version: 1\ntraces: [traces/calls]\nkernels: {}\n")
    asked = []
    for arm in ARMS:
        folder = work / f"asked-{arm}"
        shown = exemplars.exemplar if arm == "with" else lambda _: None
        with patch.object(exemplars, "exemplar", shown):
            generate(work, OPS, f"exchange:{folder}", f"asked-{arm}")
        asked += [(arm, prompt) for prompt in sorted(folder.glob("*/attempt-01/generator/prompt.md"))]
    random.Random(seed).shuffle(asked)
    key: dict[str, Any] = {"seed": seed, "prompts": {}}
    for number, (arm, prompt) in enumerate(asked, 1):
        # What a model is sent begins behind the note for whoever answers by hand.
        text = prompt.read_text(encoding="utf-8")
        text = text[text.index("<!-- system -->") :]
        folder = work / "prompts" / f"{number:03d}"
        folder.mkdir(parents=True)
        (folder / "prompt.md").write_text(text, encoding="utf-8")
        key["prompts"][folder.name] = {
            "exemplar": arm,
            "target": prompt.parents[2].name,
            "prompt_tokens": estimated_tokens(len(text)),
        }
    (work / "key.json").write_text(json.dumps(key, indent=1) + "\n")


def run_calls(seed: int) -> None:
    """Four calls of each op: other sizes, layouts, dtypes and arguments, so that a first answer can fail."""
    normal, bf16, f16 = torch.randn, torch.bfloat16, torch.float16
    torch.manual_seed(seed)
    functional.layer_norm(normal(9, 41), (41,), normal(41), normal(41))
    functional.layer_norm(normal(2, 3, 5, 7), (5, 7), normal(5, 7))
    functional.layer_norm(normal(96, 13).T, (96,), eps=1e-3)
    functional.layer_norm(normal(64, 768).to(bf16), (768,), normal(768).to(bf16), normal(768).to(bf16))
    functional.softmax(normal(6, 40, 24), dim=1)
    functional.softmax(normal(33, 17).T, dim=0)
    functional.softmax(normal(128, 1000).to(bf16), dim=-1)
    functional.softmax(normal(4, 3, 5, 9).to(f16), dim=-2, dtype=torch.float32)
    target = torch.randint(37, (13,))
    target[4] = -100
    functional.cross_entropy(normal(13, 37), target)
    functional.cross_entropy(normal(4, 11, 5), torch.randint(11, (4, 5)), ignore_index=3, reduction="sum")
    functional.cross_entropy(normal(67, 11), torch.randint(11, (67,)), normal(11).abs(), label_smoothing=0.1)
    functional.cross_entropy(normal(256, 1000).to(bf16), torch.randint(1000, (256,)), reduction="none")
    functional.conv1d(normal(2, 5, 31), normal(7, 5, 3) / 4, normal(7), padding=1)
    functional.conv1d(normal(1, 6, 40), normal(4, 3, 5) / 4, stride=2, padding=0, dilation=2, groups=2)
    functional.conv1d(normal(4, 33, 16).transpose(1, 2), normal(8, 16, 4) / 8, normal(8), padding=3)
    functional.conv1d(
        normal(8, 64, 256).to(bf16), (normal(64, 64, 3) / 14).to(bf16), normal(64).to(bf16), padding=2
    )
    attend = functional.scaled_dot_product_attention
    seen = torch.rand(5, 131) < 0.7
    attend(normal(1, 2, 5, 8), normal(1, 2, 131, 8), normal(1, 2, 131, 8), seen)
    attend(
        normal(2, 17, 3, 16).transpose(1, 2),
        normal(2, 3, 67, 16),
        normal(2, 3, 67, 10),
        normal(17, 67),
        scale=0.3,
    )
    attend(normal(1, 4, 37, 16), normal(1, 2, 37, 16), normal(1, 2, 37, 16), is_causal=True, enable_gqa=True)
    attend(
        normal(2, 4, 96, 32).to(bf16),
        normal(2, 4, 96, 32).to(bf16),
        normal(2, 4, 96, 32).to(bf16),
        is_causal=True,
    )
    torch.cumsum(normal(6, 40), 1)
    torch.cumsum(normal(19, 23).T, dim=-1)
    torch.cumsum(torch.randint(-9, 9, (7, 5, 3)), 0)
    torch.cumsum(normal(64, 2048).to(bf16), -1)


def generate(work: Path, ops: Any, asked: str, runs: str, *, timing: bool = False) -> None:
    """One run of `cgins generate` for ops, an attempt each."""
    words = ["generate", *ops, "--implementation=cpp", f"--config={work / 'project/cgins.yaml'}", "--first",
             f"--cgins-llm={asked}", "--cgins-budget=repair_attempts=1", "--cgins-pr=off",
             f"--cgins-runs={work / 'runs' / runs}"]  # fmt: skip
    cgins([*words, *([] if timing else ["--cgins-no-timing"])])


def scored(work: Path, arm: str, key: dict[str, Any]) -> list[dict[str, Any]]:
    """What became of one arm's answers."""
    rows, answers = {}, work / f"answers-{arm}"
    for name in (f"gate-{arm}", f"times-{arm}"):
        shutil.rmtree(work / "runs" / name, ignore_errors=True)
    for number, prompt in key["prompts"].items():
        if prompt["exemplar"] == arm:
            answer = work / "prompts" / number / "answer.md"
            rows[prompt["target"]] = {"number": number, **prompt, "answered": answer.exists()}
            if answer.exists():
                place = answers / prompt["target"] / "attempt-01/generator"
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(answer, place)
    if ops := [op for op in OPS if (row := rows.get(target_of(op))) and row["answered"]]:
        generate(work, ops, f"replay:{answers}", f"gate-{arm}")
        for target, outcome in outcomes(work / "runs" / f"gate-{arm}").items():
            rows[target] |= outcome
    if right := [op for op in ops if rows[target_of(op)]["outcome"] == "accepted"]:
        generate(work, right, f"replay:{answers}", f"times-{arm}", timing=True)
        for target, outcome in outcomes(work / "runs" / f"times-{arm}").items():
            rows[target] |= {"timed": outcome["outcome"], "times": outcome["times"]}
    return [rows[target_of(op)] for op in OPS]


def target_of(op: str) -> str:
    """What a run calls the kernel of an op."""
    return f"{op.rpartition('.')[2]}-cpu-cpp"


def outcomes(runs: Path) -> dict[str, dict[str, Any]]:
    """Of the only attempt for each target: what became of it, and its times in the last trial, ns a call."""
    (folder,) = runs_in(runs)
    journal = Journal.read_only(folder)
    found = {}
    for target in journal.record.targets:
        for attempt in journal.attempts(target):
            last = attempt.trials[-1].evaluations if attempt.trials else ()
            found[target.name] = {
                "outcome": attempt.outcome,
                "reason": attempt.reason,
                "message": attempt.message,
                "times": {
                    one.case.signature: [one.measurement.kernel.median_ns_per_call,
                                         one.measurement.torch.median_ns_per_call]
                    for one in last
                    if one.measurement is not None
                },
            }  # fmt: skip
    return found


def totals(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Of one arm: answers by outcome, and tokens of its prompts."""
    said = [row.get("outcome", "unanswered") for row in rows]
    return {
        "outcomes": {outcome: said.count(outcome) for outcome in sorted({*said})},
        "prompt_tokens": sum(row["prompt_tokens"] for row in rows),
    }


def markdown(found: dict[str, Any]) -> str:
    """A row an answer, and a line an arm."""
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    for row in sorted(found["answers"], key=lambda row: row["target"]):
        ratios = [theirs / own for own, theirs in row.get("times", {}).values()]
        cells = (row["target"].removesuffix("-cpu-cpp"), row["exemplar"], f"{row['prompt_tokens']:,}",
                 row.get("outcome", "unanswered"), row.get("reason", ""),
                 f"{median(ratios):.2g}× ({min(ratios):.2g} to {max(ratios):.2g})" if ratios else "–")  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("")
    for arm, total in found["totals"].items():
        told = ", ".join(f"{count} {outcome}" for outcome, count in total["outcomes"].items())
        lines.append(
            f"{arm} the exemplar: {told}; {total['prompt_tokens']:,} tokens of prompts (estimated)\n"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
