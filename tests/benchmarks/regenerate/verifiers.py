"""How well verifiers tell wrong kernels from right ones that nobody has run: planted bugs, cheats, and honest kernels.

    python tests/benchmarks/regenerate/verifiers.py prompts --work DIR [--seed N]
    python tests/benchmarks/regenerate/verifiers.py score --work DIR [--json FILE] [--markdown FILE]

`prompts` draws kernels from tests/planted, tests/adversarial and tests/honest (see `specimens.py`), strips comments
and names that tell what they are, and writes what a search would ask a verifier about each, in
DIR/prompts/NNN/prompt.md. DIR/key.json says which are wrong, and why. Somebody who sees a prompt alone writes `answer.md`
beside it. `score` compares. What the gate says of a kernel is known by the tests that these specimens have.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from specimens import FAMILIES, Specimen, pool, record

from pytest_cgins.config import load
from pytest_cgins.core import documents
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.gate.correctness_verdict import CHEATS
from pytest_cgins.regenerate import targets
from pytest_cgins.regenerate.attempt import Attempt, Trial
from pytest_cgins.regenerate.prompts import assembly
from pytest_cgins.regenerate.prompts.context import gather
from pytest_cgins.regenerate.search import verifiers
from pytest_cgins.timing.environment import describe
from tests.evaluations import make_evaluation
from tests.regenerate.prompts.example import CPU, H200

WRONG, RIGHT = 48, 32
BATCH, TRIED, DRAWS = 6, 4, 20_000
"""Of a generation: candidates that are asked for and tried; and how many are drawn to see what an order is worth."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("phase", choices=("prompts", "score"))
    parser.add_argument("--work", type=Path, required=True, metavar="DIR")
    parser.add_argument("--seed", type=int, default=27, help="of what is drawn")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    work: Path = arguments.work.resolve()
    if arguments.phase == "prompts":
        write_prompts(work, arguments.seed)
        return 0
    found = document(work, json.loads((work / "key.json").read_text()))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    if arguments.markdown is not None:
        arguments.markdown.write_text(markdown(found))
    print(markdown(found))
    return 0


def write_prompts(work: Path, seed: int) -> None:
    """Draw, and write a project a family, prompts and key."""
    chance = random.Random(seed)
    every = list(pool())
    drawn = [
        *draw([one for one in every if one.reason], WRONG, chance),
        *draw([one for one in every if not one.reason], RIGHT, chance),
    ]
    chance.shuffle(drawn)
    for family in FAMILIES:
        record(work / "projects" / family, family)
    key: dict[str, Any] = {"seed": seed, "specimens": {}}
    for number, specimen in enumerate(drawn, 1):
        folder = work / "prompts" / f"{number:03d}"
        folder.mkdir(parents=True)
        (folder / "prompt.md").write_text(prompt(work / "projects" / specimen.family, specimen, number))
        key["specimens"][folder.name] = {
            "family": specimen.kind, "name": specimen.name, "op": specimen.op, "device": specimen.device,
            "contract": specimen.contract, "reason": specimen.reason,
        }  # fmt: skip
    (work / "key.json").write_text(json.dumps(key, indent=1) + "\n")


def draw(specimens: Sequence[Specimen], count: int, chance: random.Random) -> list[Specimen]:
    """So many: each kind and reason once, in C++, CUDA or Triton where there is one, and then by chance among these.

    Right kernels in Python that were written beside cheats have a chance, too.
    """
    left, taken, seen = chance.sample(specimens, len(specimens)), list[Specimen](), set[str]()
    compiled = [one for one in left if not one.is_plain_python]
    for allowed in (compiled, left):
        while len(taken) < count:
            best = max(allowed, key=lambda one: len({one.kind, one.reason} - seen))
            if {best.kind, best.reason} <= seen:
                break
            taken.append(best)
            seen |= {best.kind, best.reason}
    rest = [one for one in left if one not in taken and (one in compiled or one.kind == "honest")]
    return [*taken, *rest[: count - len(taken)]]


def prompt(project: Path, specimen: Specimen, number: int) -> str:
    """What a search would ask about it, as a candidate for a kernel that is to be written."""
    files = specimen.write(project, f"k{number:03d}")
    config = load(project / "cgins.yaml")
    entry = config.kernels[0]
    (implementation,) = entry.implementations
    main = next(iter(files))
    context = gather(
        targets.target_of(entry, implementation, "generate"), config, entry, implementation, sources={main: ""},
        hardware=H200 if specimen.device == "cuda" else CPU, top=project,
    )  # fmt: skip
    context = replace(context, candidate={main: files[main]})
    messages = assembly.verifier(context, verifiers.QUESTIONS)
    return "\n".join(f"<!-- {message.role} -->\n{message.text.strip()}\n" for message in messages)


def document(work: Path, key: dict[str, Any]) -> dict[str, Any]:
    """All figures."""
    rows = []
    for number, specimen in key["specimens"].items():
        answer = work / "prompts" / number / "answer.md"
        said = verifiers.opinions_by_question(answer.read_text()) if answer.exists() else {}
        row = {"number": number, **specimen, "is_right": not specimen["reason"], "opinions": said}
        rows.append(row | ({"rank": fmean(said.values())} if said else {}))
    told = [row for row in rows if row["opinions"]]
    wrong = [row for row in told if not row["is_right"]]
    score = verifiers.score(map(attempt, told))
    return {
        "seed": key["seed"],
        "environment": documents.dump_python(describe("cpu")),
        "answered": len(told),
        "asked": len(rows),
        "score": documents.dump_python(score),
        "precision": score.precision,
        "recall": score.recall,
        "brier": brier([(row["rank"], row["is_right"]) for row in told]),
        "questions": {question: by_question(told, question) for question in verifiers.QUESTIONS},
        "queue": queue(told, key["seed"]),
        "reasons": doubted(wrong, "reason"),
        "families": doubted(told, "family"),
        "specimens": rows,
    }


def attempt(row: dict[str, Any]) -> Attempt:
    """What the gate found of a specimen, as the attempt of a search."""
    reason = Reason(row["reason"] or "ok")
    status = Status.PASSED if row["is_right"] else Status.SUSPECT if reason in CHEATS else Status.INCORRECT
    trial = Trial(
        stage="check", evaluations=(make_evaluation(status, reason=reason),), environments=(), seed=0, sandbox=True,
        sanitized=False, seconds=0.0,
    )  # fmt: skip
    return Attempt(
        number=int(row["number"]), goal="generate", outcome="accepted" if row["is_right"] else "failed",
        reason=reason.value, message="", trials=(trial,), rank=row["rank"], time_ratio=1.0 if row["is_right"] else None,
    )  # fmt: skip


def by_question(rows: Sequence[dict[str, Any]], question: str) -> dict[str, Any]:
    """Of one question, over kernels of which the gate's finding answers it."""
    pairs = [
        (row["opinions"][question], facts[question])
        for row in rows
        if question in row["opinions"] and question in (facts := verifiers.truths(attempt(row)))
    ]
    said = [(chance >= 0.5, is_so) for chance, is_so in pairs]
    score = verifiers.Score(
        right_and_said_so=said.count((True, True)), wrong_and_said_right=said.count((True, False)),
        right_and_doubted=said.count((False, True)), wrong_and_doubted=said.count((False, False)),
    )  # fmt: skip
    return {
        **documents.dump_python(score),
        "precision": score.precision,
        "recall": score.recall,
        "brier": brier(pairs),
    }


def brier(pairs: Sequence[tuple[float, bool]]) -> float | None:
    """Mean square of chance less fact: 0 is perfect, 0.25 what "50%" gets."""
    return fmean((chance - is_so) ** 2 for chance, is_so in pairs) if pairs else None


def doubted(rows: Sequence[dict[str, Any]], by: str) -> dict[str, dict[str, int]]:
    """How many were doubted in the mean, and how many in one question at least."""
    found: dict[str, dict[str, int]] = {}
    for row in sorted(rows, key=lambda row: row[by]):
        counts = found.setdefault(row[by], {"kernels": 0, "wrong": 0, "doubted": 0, "doubted_in_one": 0})
        counts["kernels"] += 1
        counts["wrong"] += not row["is_right"]
        counts["doubted"] += row["rank"] < 0.5
        counts["doubted_in_one"] += min(row["opinions"].values()) < 0.5
    return found


def queue(rows: Sequence[dict[str, Any]], seed: int) -> dict[str, float]:
    """What it is worth to try kernels in the order of opinions, against an order by chance."""
    chance, right = random.Random(seed), [row for row in rows if row["is_right"]]
    wrong = [row for row in rows if not row["is_right"]]

    def in_order(batch: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(chance.sample(batch, len(batch)), key=lambda row: -row["rank"])

    def share(batches: Sequence[Sequence[dict[str, Any]]]) -> float:
        return fmean(any(row["is_right"] for row in batch[:TRIED]) for batch in batches)

    if len(rows) < BATCH or not right or len(wrong) < BATCH:
        return {}
    mixed = [chance.sample(rows, BATCH) for _ in range(DRAWS)]
    alone = [[chance.choice(right), *chance.sample(wrong, BATCH - 1)] for _ in range(DRAWS)]
    positions = [place for place, row in enumerate(in_order(rows), 1) if row["is_right"]]
    return {
        "mean_position_of_right": fmean(positions),
        "mean_position_by_chance": (len(rows) + 1) / 2,
        "a_right_one_is_tried": share([in_order(batch) for batch in mixed]),
        "a_right_one_is_tried_by_chance": share(mixed),
        "the_only_right_one_is_tried": share([in_order(batch) for batch in alone]),
        "the_only_right_one_is_tried_by_chance": TRIED / BATCH,
    }


def markdown(found: dict[str, Any]) -> str:
    """Tables of questions, families and reasons."""
    lines = [f"{found['answered']} of {found['asked']} prompts were answered (seed {found['seed']}).", ""]
    lines += [
        "| opinion on | right, said so | wrong, said right | right, doubted | wrong, doubted | precision | recall | Brier |"
    ]
    lines += ["|---|---:|---:|---:|---:|---:|---:|---:|"]
    overall = {**found["score"], **{name: found[name] for name in ("precision", "recall", "brier")}}
    for name, row in {"all, their mean": overall, **found["questions"]}.items():
        counts = (
            row[key]
            for key in ("right_and_said_so", "wrong_and_said_right", "right_and_doubted", "wrong_and_doubted")
        )
        shares = (row[key] for key in ("precision", "recall", "brier"))
        lines.append(f"| {' | '.join([name, *map(str, counts), *map(_share, shares)])} |")
    for title, key in (("family", "families"), ("reason of wrong ones", "reasons")):
        lines += [
            "",
            f"| {title} | kernels | wrong | doubted | doubted in one question |",
            "|---|---:|---:|---:|---:|",
        ]
        lines += [f"| {name} | {' | '.join(map(str, row.values()))} |" for name, row in found[key].items()]
    lines += ["", *(f"- {name.replace('_', ' ')}: {value:.3g}" for name, value in found["queue"].items())]
    return "\n".join(lines) + "\n"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    sys.exit(main())
