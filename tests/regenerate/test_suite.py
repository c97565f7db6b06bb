"""`cgins suite`: problems, runs, and one table over them."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cgins.regenerate.plain_harness import PlainAnswer, read_told, score
from pytest_cgins.regenerate.suite import FAST, Solution, curve, scores, solutions
from tests.evaluations import make_evaluation
from tests.regenerate import journals

PROBLEM = """\
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return %s

def get_inputs():
    return [torch.randn(16, %d)]

def get_init_inputs():
    return []
"""
ANSWER = """\
```cpp kernels/NAME.cpp
// cgins: NAME(Tensor x) -> Tensor
#include <cgins.h>

extern "C" int NAME(const DLTensor* x, DLTensor* out, cgins_stream) {
  return cgins::dispatch_floating(x, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < cgins::numel(x); ++i) {
      const auto v = cgins::accumulator<T>(cgins::data<const T>(x)[cgins::offset_of(x, i)]);
      cgins::data<T>(out)[cgins::offset_of(out, i)] = T(%s);
    }
    return 0;
  });
}
```
"""


def solution(right_after: int | None, *best: float, family: str = "elementwise") -> Solution:
    speeds = {"torch": max(best)} if right_after is not None and best else {}
    state = "accepted" if right_after is not None else "failed"
    return Solution(
        op="references.p.Model", family=family, state=state, answers=len(best), right_after=right_after,
        speeds=speeds, best=best,
    )  # fmt: skip


def test_who_solves_nothing_counts() -> None:
    """fast_p and the share solved are of all problems that were drawn, also of those that could not be recorded."""
    found = [solution(1, 0.5, 2.5), solution(2, 0.0, 0.5), solution(None, 0.0, 0.0), solution(1, 1.2)]
    (row,) = scores("cuda", found, drawn=5)
    assert (row.problems, row.family) == (5, "")
    assert dict(zip(FAST, row.fast["torch"], strict=True)) == {0.0: 0.6, 1.0: 0.4, 1.5: 0.2, 2.0: 0.2}
    assert row.mean_speed["torch"] == pytest.approx((2.5 * 0.5 * 1.2) ** (1 / 3))
    assert row.answers_per_problem == pytest.approx(7 / 5)
    assert curve(found, 0.0, 5) == [0.4, 0.6]
    assert curve(found, 1.0, 5) == [0.2, 0.4]


def test_kinds_of_ops_have_rows_of_their_own() -> None:
    """Where there is more than one kind."""
    found = [solution(1, 2.0), solution(None, family="matmul")]
    rows = scores("cuda", found, drawn=2)
    assert [(row.family, row.problems, row.fast["torch"][0]) for row in rows] == [
        ("", 2, 0.5), ("elementwise", 1, 1.0), ("matmul", 1, 0.0),
    ]  # fmt: skip


def test_a_faster_kernel_of_the_same_run_is_the_problem_s(tmp_path: Path) -> None:
    """Its answers follow those of the first; a search that found nothing leaves the first one's times."""
    first = journals.target("kb_001_relu", op="references.kb_001_relu.Model", goal="generate")
    faster = journals.target(
        "kb_001_relu", op="references.kb_001_relu.Model", goal="optimise", improves=first.name
    )
    run = journals.journal(tmp_path / "cgins.yaml", first, faster)
    timed = make_evaluation(kernel="kb_001_relu", implementation="cpp", times_ns=(2000.0, 1000.0))
    journals.attempt(run, first, 1)
    journals.attempt(run, first, 2, "accepted", trials=(journals.trial(timed, stage="acceptance"),))
    journals.settle(run, first, "accepted", {"kernels/k.cpp": "!"})
    (found,) = solutions(run)
    assert (found.state, found.right_after, found.answers) == ("waiting", 2, 2)
    assert found.best == pytest.approx((0.0, 0.5))
    better = make_evaluation(kernel="kb_001_relu", implementation="cpp", times_ns=(1000.0, 2000.0))
    journals.attempt(run, faster, 1, "accepted", trials=(journals.trial(better, stage="acceptance"),))
    journals.settle(run, faster, "accepted", {"kernels/k.cpp": "!!"})
    (found,) = solutions(run)
    assert (found.state, found.right_after, found.answers, found.speeds["torch"]) == ("accepted", 2, 3, 2.0)


def test_a_suite_of_recorded_answers(
    tmp_path: Path, cgins: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """One problem is solved, one is not, one cannot be recorded; given again, the same command does nothing twice.

    A plain harness takes the wrong one for right: the recorded numbers are all below what it gets wrong.
    """
    level = tmp_path / "level1"
    level.mkdir()
    (level / "1_Twice.py").write_text(PROBLEM % ("x * 2", 8))
    (level / "2_Thrice.py").write_text(PROBLEM % ("x * 3", 9))
    (level / "3_Broken.py").write_text(PROBLEM % ("x @ x", 7))
    for name, text in (("kb_l1_001_twice", "v * 2"), ("kb_l1_002_thrice", "v < 6 ? v * 3 : v")):
        said = tmp_path / "answers" / f"{name}-cpu-cpp" / "attempt-01" / "generator.md"
        said.parent.mkdir(parents=True)
        said.write_text((ANSWER % text).replace("NAME", name))
    words = ("suite", "kernelbench", "level1", "--out", "made", "--allow-code", "--implementation=cpp",
             f"--cgins-llm=replay:{tmp_path / 'answers'}", "--cgins-no-timing", "--cgins-budget=repair_attempts=1",
             "--cgins-sandbox=off")  # fmt: skip
    done = cgins(tmp_path, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3_Broken" in done.stdout + done.stderr
    row = done.stdout.splitlines()[-1].split()
    assert row[:6] == ["cpp", "first", "right", "all", "3", "33%"]
    results = json.loads((tmp_path / "made/results.json").read_text())
    (variant,) = results["variants"]
    assert [one["state"] for one in variant["solutions"]] == ["accepted", "failed"]
    assert "kb_l1_001_twice.Model" in (tmp_path / "made/suite.html").read_text()
    again = cgins(tmp_path, *words, "--plain")
    assert (again.returncode, again.stdout.split("run")[1].splitlines()[-1].split()) == (0, row), again.stderr
    plain = json.loads((tmp_path / "made/plain.json").read_text())["answers"]
    assert [(one["right"], one["gate_right"]) for one in plain] == [(True, True), (True, False)], plain
    page = (tmp_path / "made/suite.html").read_text()
    assert "kb_l1_002_thrice-cpu-cpp</td>" in page
    assert "<td>wrong</td>" in page
    changed = (tmp_path / "made/plain.json").stat().st_mtime_ns
    last = cgins(tmp_path, *words, "--plain").stdout.splitlines()[-1].split()
    assert last[:6] == ["cpp", "first", "right", "2", "2", "1"]
    assert (tmp_path / "made/plain.json").stat().st_mtime_ns == changed
    other = cgins(tmp_path, *words, "--cgins-policy=refine")
    assert other.returncode == 2
    assert "was begun with other languages, policies or models: cpp first right" in other.stderr


def test_what_a_plain_harness_counts() -> None:
    """Of five answers: right and faster for both, wrong, no faster, right and untimed, right for the gate alone."""
    said = {"run": "r", "target": "t", "number": 1, "why": "", "gate_reason": ""}
    found = [
        PlainAnswer(right=right, speed=speed, gate_right=gate_right, gate_speed=gate_speed, **said)
        for right, speed, gate_right, gate_speed in (
            (True, 2.0, True, 1.5), (True, 2.0, False, 0.0), (True, 1.2, True, 0.9), (True, 1.2, True, 0.0),
            (False, 0.0, True, 1.1),
        )
    ]  # fmt: skip
    made = (5, 4, 1, 4, 2, 1)
    assert score(found) == made


@pytest.mark.parametrize(
    ("kernel_s", "torch_s", "speed"),
    [
        (1e-6, 2e-6, 2.0), (0.0, 2e-6, 1e6), (-1e-6, 2e-6, 1e6), (math.nan, 2e-6, 0.0), (1e-6, math.inf, 0.0),
        (1e-6, 0.0, 0.0),
    ],
)  # fmt: skip
def test_a_kernel_may_say_anything_of_its_time(kernel_s: float, torch_s: float, speed: float) -> None:
    """Clock and kernel share a process: a stopped clock is what a plain harness believes, and no number is none."""
    told = read_told({"right": True, "kernel_s": kernel_s, "torch_s": torch_s})
    assert told.right
    assert told.speed == pytest.approx(speed)


@pytest.mark.parametrize(
    "answer", [None, [], {}, {"right": 1}, {"right": True, "kernel_s": "fast"}, {"wrong": 1}]
)
def test_what_is_no_result_is_not_right(answer: object) -> None:
    """It ends no suite."""
    told = read_told(answer)
    assert not told.right
    assert told.why.startswith("its process says no result: ")


def test_what_cannot_be_a_suite(
    tmp_path: Path, cgins: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """A folder without problems, a place that is taken, and nobody to ask: that is said before anything is recorded."""
    words = ("suite", "kernelbench", ".", "--out", "made", "--implementation=cpp", "--cgins-llm=exchange")
    none = cgins(tmp_path, *words)
    assert none.returncode == 2
    assert ". has no problem of kernelbench\n→ name a folder with files such as [0-9]*_*.py" in none.stderr
    (tmp_path / "1_A.py").write_text("")
    unasked = cgins(tmp_path, *words[:-1])
    assert "no model is configured" in unasked.stderr
    assert not (tmp_path / "made").exists()
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "own.txt").write_text("")
    taken = cgins(tmp_path, *words)
    assert "made is in use, and has no suite.json" in taken.stderr


def test_two_policies_have_prompts_of_their_own(
    tmp_path: Path, cgins: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """Both ask for the same kernel, and may get other answers: neither run is refused for the other's prompts."""
    (tmp_path / "1_Double.py").write_text(PROBLEM % ("x * 2", 64))
    words = ("suite", "kernelbench", ".", "--out", "made", "--allow-code", "--implementation=cpp")
    policies = ("--cgins-policy=refine", "--cgins-policy=mcts")
    asked = cgins(tmp_path, *words, *policies, "--cgins-llm=exchange:answers")
    assert asked.returncode == 7, asked.stderr
    prompts = sorted(file.relative_to(tmp_path / "answers") for file in tmp_path.glob("answers/**/prompt.md"))
    assert {prompt.parts[0] for prompt in prompts} == {"cpp-refine", "cpp-mcts"}
