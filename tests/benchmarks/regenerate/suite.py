"""The machinery of `cgins suite` on a hundred problems whose answers are known, killed in mid run and gone on with.

    python tests/benchmarks/regenerate/suite.py --work DIR [--problems 100] [--kills 2] [--json FILE]

The problems are made in DIR, in the form of KernelBench: elementwise, each with its own factor and size. Of each ten, seven
are answered rightly at once, one after a wrong answer, one never, and one cannot be recorded. The command is killed with
SIGKILL, processes below it and all, when a third and two thirds of its answers have been tried, and given again. At
the end the table must say what was planted, and no answer may have been tried twice. Times are of this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pytest_cgins.core import documents
from pytest_cgins.timing.environment import describe

CGINS = (
    sys.executable,
    "-c",
    "import sys; from pytest_cgins.app.cli import main; sys.exit(main(sys.argv[1:]))",
)
PROBLEM = """\
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return {expression}

def get_inputs():
    return [torch.randn(4, {size})]

def get_init_inputs():
    return []
"""
ANSWER = """\
```cpp kernels/{name}.cpp
// cgins: {name}(Tensor x) -> Tensor
#include <cgins.h>

extern "C" int {name}(const DLTensor* x, DLTensor* out, cgins_stream) {{
  return cgins::dispatch_floating(x, [&](auto zero) {{
    using T = decltype(zero);
    for (int64_t i = 0; i < cgins::numel(x); ++i) {{
      const auto v = cgins::accumulator<T>(cgins::data<const T>(x)[cgins::offset_of(x, i)]);
      cgins::data<T>(out)[cgins::offset_of(out, i)] = T(v * {factor} + {added});
    }}
    return 0;
  }});
}}
```
"""
ATTEMPTS = 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True)
    expected = planted(arguments.work, arguments.problems)
    seconds, kills = run(arguments.work, expected["answers"], arguments.kills)
    found = outcome(arguments.work)
    found |= {"seconds": round(seconds, 1), "kills": kills}
    for key in expected:
        print(f"{key:24} {found[key]:>8}  planted {expected[key]}")
    print(f"{'problems a minute':24} {60 * arguments.problems / seconds:8.1f}")
    if arguments.json:
        document = {
            "found": found,
            "planted": expected,
            "environment": documents.dump_python(describe("cpu")),
        }
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    return int(any(found[key] != expected[key] for key in expected))


def planted(work: Path, problems: int) -> dict[str, int]:
    """Make the problems and the answers; what must come of them."""
    kinds = {"right": 0, "second": 0, "never": 0, "unrecorded": 0}
    for number in range(1, problems + 1):
        kind = ["right"] * 7 + ["second", "never", "unrecorded"]
        kinds[told := kind[number % 10]] += 1
        factor, size = number + 1, 8 + number % 5
        expression = f"x * {factor} + 1" if told != "unrecorded" else "x @ x @ x"
        (work / "problems").mkdir(exist_ok=True)
        (work / "problems" / f"{number}_Scale.py").write_text(
            PROBLEM.format(expression=expression, size=size)
        )
        name = f"kb_{number:03d}_scale"
        for attempt in range(1, ATTEMPTS + 1):
            is_wrong = told == "never" or (told == "second" and attempt == 1)
            said = work / "answers" / f"{name}-cpu-cpp" / f"attempt-{attempt:02d}" / "generator.md"
            said.parent.mkdir(parents=True)
            added = f"{attempt + 1}" if is_wrong else "1"
            said.write_text(ANSWER.format(name=name, factor=factor, added=added))
            helper = said.with_name("helper.md")
            helper.write_text("Add 1, not another number.")
    right = kinds["right"] + kinds["second"]
    answers = kinds["right"] + ATTEMPTS * (kinds["second"] + kinds["never"])
    return {"problems": problems, "solved": right, "answers": answers, "tried twice": 0}


def run(work: Path, answers: int, kills: int) -> tuple[float, int]:
    """Seconds that all parts took, and how often it was killed."""
    words = ["suite", "kernelbench", "problems", "--out", "made", "--allow-code", "--implementation=cpp",
             "--cgins-llm=replay:answers", "--cgins-no-timing", f"--cgins-budget=repair_attempts={ATTEMPTS}"]  # fmt: skip
    log = (work / "output.txt").open("w")
    killed, began = 0, time.monotonic()
    while True:
        process = subprocess.Popen([*CGINS, *words], cwd=work, stdout=log, stderr=log, start_new_session=True)
        while process.poll() is None:
            done = len(tried(work))
            if killed < kills and done >= answers * (killed + 1) // (kills + 1):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                killed += 1
                break
            time.sleep(0.2)
        else:
            if process.returncode:
                raise SystemExit(f"the suite ended with {process.returncode}: see {work / 'output.txt'}")
            return time.monotonic() - began, killed


def tried(work: Path) -> list[Path]:
    """Answers whose outcome is known."""
    return list((work / "made/.cgins/runs").glob("*/*/attempt-*/attempt.json"))


def outcome(work: Path) -> dict[str, Any]:
    """What the suite's results say, and how often an answer was tried twice."""
    (variant,) = json.loads((work / "made/results.json").read_text())["variants"]
    score = next(one for one in variant["scores"] if not one["family"])
    (events,) = (work / "made/.cgins/runs").glob("*/events.log")
    ends = [
        line.split(": ")[0].split()[-1]
        for line in events.read_text().splitlines()
        if "/attempt-" in line and "(" in line
    ]
    ends = [end for end in ends if end.count("/") == 1]
    return {
        "problems": score["problems"],
        "solved": round(score["fast"]["torch"][0] * score["problems"]),
        "answers": sum(one["answers"] for one in variant["solutions"]),
        "tried twice": len(ends) - len(set(ends)),
    }


if __name__ == "__main__":
    sys.exit(main())
