"""How many kernels of several ranks with a bug the gate finds, by what it calls them, and how many honest ones pass.

    python tests/benchmarks/ranks.py [--device cpu|cuda] [--runs N] [--json PATH]

Every kernel of tests/planted/ranks is gated as tests/planted/ranks/test_ranks.py does, on the inputs of as many seeds as
there are runs, and honest ones are timed beside torch's own once. Exit code 1 if a bug passed or an honest kernel failed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from pytest_cgins.core import documents  # noqa: E402
from pytest_cgins.core.session_report import Evaluation  # noqa: E402
from pytest_cgins.timing.environment import describe  # noqa: E402
from tests.planted.ranks import project  # noqa: E402
from tests.planted.ranks.rank_kernels import OTHERS  # noqa: E402
from tests.planted.ranks.test_ranks import FOUND  # noqa: E402


def main() -> int:
    options = _options()
    cuda = options.device == "cuda"
    ops = project.ON_GPUS if cuda else project.OPS
    kernels = {name: op for name, op in ops.items() if name not in OTHERS}
    with tempfile.TemporaryDirectory() as name:
        loaded = project.make(Path(name), kernels, device=options.device)
        rows: dict[str, list[Evaluation]] = {kernel: [] for kernel in kernels}
        for run in range(options.runs):
            limit_s = 20.0 if cuda else project.LIMIT_S
            with closing(project.evaluator(loaded, seed=run, timing=run == 0, limit_s=limit_s)) as evaluator:
                for case in evaluator.cases():
                    rows[case.kernel].append(evaluator.evaluate(case))
                    row = _row(case.kernel, rows[case.kernel])
                    line = f"{row['right']:3} of {run + 1}  {row['reasons']}  {row['message'][:150]}"
                    print(f"{case.kernel:26} {line}", flush=True)
    table = {kernel: _row(kernel, evaluations) for kernel, evaluations in rows.items() if evaluations}
    if options.json:
        environment = documents.dump_python(describe("cuda:0" if cuda else "cpu"))
        result = {"environment": environment, "runs": options.runs, "kernels": table}
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return int(any(row["right"] < options.runs for row in table.values()))


def _row(kernel: str, evaluations: list[Evaluation]) -> dict[str, Any]:
    """What was told, and how often that was right: found by name, or passed."""
    verdicts = [evaluation.verdict for evaluation in evaluations]
    reasons, words = FOUND.get(kernel, ((), ""))
    right = [
        verdict.reason.value in reasons and bool(re.search(words, verdict.message))
        if kernel in FOUND
        else verdict.status.outcome == "pass"
        for verdict in verdicts
    ]
    shown = next((verdict for verdict, fine in zip(verdicts, right, strict=True) if not fine), verdicts[0])
    numbers = verdicts[0].numbers
    return {
        "bug": kernel in FOUND,
        "right": sum(right),
        "reasons": dict(Counter(f"{one.status.value} {one.reason.value}" for one in verdicts)),
        "message": shown.message.partition("\n")[0],
        "seconds": round(sum(evaluation.seconds for evaluation in evaluations) / len(evaluations), 2),
        **{
            f"{arm}_us": round(numbers[key] / 1e3, 1)
            for arm in ("kernel", "torch")
            if (key := f"{arm}_median_ns_per_call") in numbers
        },
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--runs", type=int, default=1, help="seeds")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
