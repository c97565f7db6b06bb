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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import prod
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
JOINED: dict[str, Callable[[Iterable[float]], float]] = {"mean": fmean, "least": min, "product": prod}
"""Ways to make one opinion of a kernel's; a search takes the product, since 2026-11-28."""
ENDS = (
    Reason.ABORTED, Reason.EXITED, Reason.ERROR_CODE, Reason.RAISED, Reason.CONNECTION_CLOSED, Reason.ILLEGAL_ADDRESS,
)  # fmt: skip
"""Of processes and calls that ended without an answer."""
BATCH, TRIED, DRAWS = 6, 4, 20_000
"""Candidates of a generation that are asked for and tried; how often one is drawn to see what an order is worth."""


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
        joined = {name: join(said.values()) for name, join in JOINED.items()} if said else {}
        rows.append(
            {"number": number, **specimen, "is_right": not specimen["reason"], "opinions": said, **joined}
        )
    told = [row for row in rows if row["opinions"]]
    questions: dict[str, list[tuple[float, bool]]] = {question: [] for question in verifiers.QUESTIONS}
    for row in told:
        facts = verifiers.truths(attempt(row))
        for question in row["opinions"].keys() & facts.keys():
            questions[question].append((row["opinions"][question], facts[question]))
    return {
        "seed": key["seed"],
        "environment": documents.dump_python(describe("cpu")),
        "answered": len(told),
        "asked": len(rows),
        "joined": {name: figures([(row[name], row["is_right"]) for row in told]) for name in JOINED},
        "questions": {question: figures(pairs) for question, pairs in questions.items()},
        "orders": {name: queue(told, name, key["seed"]) for name in ("chance", *JOINED)},
        "specimens": rows,
    }


def attempt(row: dict[str, Any]) -> Attempt:
    """What the gate finds of a specimen, as the attempt of a search."""
    reason = Reason(row["reason"] or "ok")
    status = (
        Status.SUSPECT if reason in CHEATS else Status.RUNTIME_ERROR if reason in ENDS else Status.INCORRECT
    )
    evaluation = make_evaluation(Status.PASSED if row["is_right"] else status, reason=reason)
    trial = Trial(
        stage="check",
        evaluations=(evaluation,),
        environments=(),
        seed=0,
        sandbox=True,
        sanitized=False,
        seconds=0.0,
    )
    return Attempt(
        number=int(row["number"]), goal="generate", outcome="accepted" if row["is_right"] else "failed",
        reason=reason.value, message="", trials=(trial,), time_ratio=1.0 if row["is_right"] else None,
    )  # fmt: skip


def figures(pairs: Sequence[tuple[float, bool]]) -> dict[str, Any]:
    """Of chances and facts; Brier's score is 0 at best, and 0.25 where all chances are a half."""
    said = [(chance >= 0.5, is_so) for chance, is_so in pairs]
    score = verifiers.Score(
        right_and_said_so=said.count((True, True)), wrong_and_said_right=said.count((True, False)),
        right_and_doubted=said.count((False, True)), wrong_and_doubted=said.count((False, False)),
    )  # fmt: skip
    brier = fmean((chance - is_so) ** 2 for chance, is_so in pairs) if pairs else None
    return {
        **documents.dump_python(score),
        "precision": score.precision,
        "recall": score.recall,
        "brier": brier,
    }


def queue(rows: Sequence[dict[str, Any]], by: str, seed: int) -> dict[str, float]:
    """Where right kernels stand in an order, and how often one is tried: of six drawn, and of one with five wrong ones."""
    chance, right = random.Random(seed), [row for row in rows if row["is_right"]]
    wrong = [row for row in rows if not row["is_right"]]

    def in_order(batch: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(chance.sample(batch, len(batch)), key=lambda row: -row.get(by, 0.0))

    def share(draw_one: Callable[[], list[dict[str, Any]]]) -> float:
        return fmean(any(row["is_right"] for row in in_order(draw_one())[:TRIED]) for _ in range(DRAWS))

    return {
        "mean_position_of_right": fmean(
            place for place, row in enumerate(in_order(rows), 1) if row["is_right"]
        ),
        "a_right_one_is_tried": share(lambda: chance.sample(rows, BATCH)),
        "the_only_right_one_is_tried": share(
            lambda: [chance.choice(right), *chance.sample(wrong, BATCH - 1)]
        ),
    }


def markdown(found: dict[str, Any]) -> str:
    """Tables of opinions and orders, and which wrong kernels and right ones were told from each other."""
    lines = [f"{found['answered']} of {found['asked']} prompts were answered (seed {found['seed']}).", ""]
    lines += [
        "| opinion | right, said so | wrong, said right | right, doubted | wrong, doubted | precision, right ones | recall, right ones | Brier |"
    ]
    lines += ["|---|---:|---:|---:|---:|---:|---:|---:|"]
    opinions = {**{f"all, {name}": row for name, row in found["joined"].items()}, **found["questions"]}
    lines += [f"| {name} | {' | '.join(map(_cell, row.values()))} |" for name, row in opinions.items()]
    lines += [
        "",
        f"| order by | mean position of right ones | one of {BATCH} is right, and among the first {TRIED} | the only right one is |",
    ]
    lines += ["|---|---:|---:|---:|"]
    lines += [f"| {name} | {' | '.join(map(_cell, row.values()))} |" for name, row in found["orders"].items()]
    told = [row for row in found["specimens"] if row["opinions"]]
    groups = {"doubted in the mean": lambda row: row["mean"] < 0.5,
              "doubted in one question alone": lambda row: row["least"] < 0.5 <= row["mean"],
              "not doubted": lambda row: row["least"] >= 0.5}  # fmt: skip
    for title, belongs in groups.items():
        reasons = sorted(row["reason"] for row in told if row["reason"] and belongs(row))
        right = sorted(row["name"] for row in told if row["is_right"] and belongs(row))
        names = f": {', '.join(right)}" if title != "not doubted" and right else ""
        lines += ["", f"{title}: {len(reasons)} wrong ({', '.join(reasons)}), {len(right)} right{names}"]
    return "\n".join(lines) + "\n"


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
