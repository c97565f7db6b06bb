"""How many planted bugs the gate catches, and how many legitimate kernels it calls wrong.

    python tests/benchmarks/planted_bugs.py [--device cpu|cuda] [--fit] [--seed N] [--jobs N] [--part I/N] [--seconds S] [--json PATH]

Every bug of tests/planted/bugs.yaml and every variant of tests/planted/variants/ is built, run in the
verification worker and judged, in fp32, fp16 and bf16. With `--fit` the numbers behind the derived rule are
taken too: max z / max(1, max z_t) and rms z / rms z_t of each kernel on each set of inputs, and from them
what a choice of C and c would have passed. Exit code 1 if a legitimate variant was called wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from pytest_cgins.core import documents  # noqa: E402
from pytest_cgins.gate.evaluate import Evaluator  # noqa: E402
from pytest_cgins.timing.environment import describe  # noqa: E402
from tests.planted import edits, project  # noqa: E402
from tests.planted.fit import Sample, samples, table  # noqa: E402
from tests.planted.outcome import Bug, Outcome, evaluate_at_once, listed  # noqa: E402

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def main() -> int:
    options = _options()
    device = options.device
    bugs = {bug.id: bug for bug in listed()}
    sources = [*(edits.planted(bug, device) for bug in bugs), *edits.variants(device)]
    part, parts = options.part
    sources = sources[part - 1 :: parts]
    names = [source.name for source in sources]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cache = options.cache or folder / "cache"
        loaded = project.make(folder / "project", sources, device, DTYPES)
        refused = project.build_all(loaded, names, device, cache, options.jobs)
        outcomes = evaluate_at_once(
            loaded.file,
            names,
            cache,
            processes=options.jobs,
            seed=options.seed,
            probes="full",
            seconds=options.seconds,
        )
        reached = {outcome.kernel for outcome in outcomes}
        left = [name for name in names if name not in reached and name not in refused]
        with closing(Evaluator(loaded, seed=options.seed, timing=False, cache=cache)) as evaluator:
            taken = samples(evaluator, options.seed, device, cache) if options.fit else []
    legitimate = [outcome for outcome in outcomes if outcome.kernel not in bugs]
    planted = [outcome for outcome in outcomes if outcome.kernel in bugs]
    print(_report(planted, legitimate, bugs, refused))
    print(f"not reached: {len(left)} of {len(names)}: {', '.join(left)}" if left else "all reached")
    if taken:
        print(table(taken, set(bugs)))
    if options.json:
        result = _result(planted, legitimate, bugs, taken)
        environment = documents.dump_python(describe("cpu" if device == "cpu" else "cuda:0"))
        result = {
            "environment": environment,
            "seed": options.seed,
            "refused": refused,
            "not_reached": left,
            **result,
        }
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if refused or any(outcome.false_fails for outcome in legitimate) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument(
        "--fit", action="store_true", help="take z of every kernel, and print what other C and c do"
    )
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2, help="kernels built and judged at a time")
    parser.add_argument("--part", type=_part, default=(1, 1), help="I/N: the I-th of N parts of the kernels")
    parser.add_argument("--seconds", type=float, help="begin with no kernel after that")
    parser.add_argument("--cache", type=Path, help="folder of built kernels that is kept")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _part(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    return int(part), int(parts)


def _report(
    planted: list[Outcome], legitimate: list[Outcome], bugs: dict[str, Bug], refused: dict[str, str]
) -> str:
    """Tables: recall by dtype, each bug with its error, false fails."""
    lines = [f"not built: {name}\n{log}" for name, log in refused.items()]
    # A looser tolerance makes both shares less.
    lines += [
        "| dtype | bugs caught | place named | legitimate cases failed | greatest share of the tolerance: legitimate | least: a bug |",
        "|---|---|---|---|---|---|",
    ]
    for dtype in dict.fromkeys(outcome.dtype for outcome in [*planted, *legitimate]):
        mine = [outcome for outcome in planted if outcome.dtype == dtype]
        caught = [outcome for outcome in mine if outcome.caught]
        named = [outcome for outcome in caught if outcome.names(bugs[outcome.kernel].place)]
        cases = [e for outcome in legitimate if outcome.dtype == dtype for e in outcome.evaluations]
        failed = sum(len(outcome.false_fails) for outcome in legitimate if outcome.dtype == dtype)
        right = max((outcome.share for outcome in legitimate if outcome.dtype == dtype), default=0.0)
        wrong = min((outcome.share for outcome in mine), default=math.inf)
        lines.append(
            f"| {dtype} | {len(caught)} of {len(mine)} | {len(named)} of {len(caught)} | {failed} of {len(cases)} "
            f"| {right:.3g} | {wrong:.3g} |"
        )
    for outcome in planted:
        if not outcome.caught:
            lines.append(
                f"missed in {outcome.dtype}: {outcome.kernel}, error {outcome.share:.3g} times the tolerance"
            )
        elif not outcome.names(bugs[outcome.kernel].place):
            place = bugs[outcome.kernel].place
            lines.append(f"place {place!r} not named in {outcome.dtype}: {outcome.kernel}")
    lines += [
        f"false fail in {outcome.dtype}: {evaluation.case.name}: {evaluation.verdict.message}"
        for outcome in legitimate
        for evaluation in outcome.false_fails
    ]
    return "\n".join(lines)


def _result(
    planted: list[Outcome], legitimate: list[Outcome], bugs: dict[str, Bug], taken: list[Sample]
) -> dict[str, Any]:
    return {
        "bugs": [
            {
                "id": outcome.kernel,
                "dtype": outcome.dtype,
                "caught": outcome.caught,
                "error_share_of_tolerance": outcome.share,
                "place_named": outcome.names(bugs[outcome.kernel].place),
                "reasons": sorted({check.reason.value for check in outcome.failed_checks()}),
                "messages": [check.message for check in outcome.failed_checks()],
            }
            for outcome in planted
        ],
        "variants": [
            {
                "name": outcome.kernel,
                "dtype": outcome.dtype,
                "cases": len(outcome.evaluations),
                "failed": [evaluation.verdict.message for evaluation in outcome.false_fails],
                "error_share_of_tolerance": outcome.share,
            }
            for outcome in legitimate
        ],
        "fit": [asdict(sample) for sample in taken],
    }


if __name__ == "__main__":
    raise SystemExit(main())
