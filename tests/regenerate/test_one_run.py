"""From an op without a kernel to a fast one in one run."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import pytest_cgins
from pytest_cgins.regenerate import proposal, run_setup, run_status
from pytest_cgins.regenerate.journal.journal import Journal, runs_in
from pytest_cgins.run.sandbox.sandbox import Sandbox
from tests.regenerate import journals

NEEDS_SANDBOX = pytest.mark.skipif(bool(Sandbox().available()), reason="this host gives no sandbox")
FIRST = "ex/relu-cpu-cpp/attempt-01/generator"
ANSWER = """\
```cpp kernels/relu.cpp
// cgins: relu(Tensor input, bool inplace=False) -> Tensor
#include <cgins.h>

extern "C" int relu(const DLTensor* input, bool, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(input), "contiguous tensors only");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const T* x = cgins::data<const T>(input);
    T* y = cgins::data<T>(out);
    for (int repeat = 0; repeat < %d; ++repeat)
      for (int64_t i = 0; i < cgins::numel(input); ++i) {
        const volatile float v = float(x[i]);
        y[i] = T(v < 0 ? 0 : v);
      }
    return 0;
  });
}
```
"""


def answers(folder: Path, target: str, text: str) -> None:
    """Answer the one prompt that a target waits with."""
    (prompt,) = [
        file
        for file in folder.glob(f"{target}/attempt-*/generator/prompt.md")
        if not (file.parent / "answer.md").exists()
    ]
    (prompt.parent / "answer.md").write_text(text)


@NEEDS_SANDBOX
@pytest.mark.exam
def test_the_first_right_kernel_becomes_faster(
    tmp_path: Path, cgins: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """The best of a search is proposed in the place of the first, also where no more is asked for; without one the first is."""
    import torch

    here = tmp_path / "project"
    here.mkdir()
    with pytest_cgins.record(here / "traces/tiny", ops=["torch.nn.functional.relu"]):
        torch.nn.functional.relu(torch.randn(64, 96))
    (here / "cgins.yaml").write_text("version: 1\ntraces: [traces/tiny]\nkernels: {}\n")
    words = (
        "generate",
        "relu",
        "--implementation=cpp",
        "--cgins-llm=exchange:ex",
        "--cgins-policy=refine",
    )
    assert cgins(here, *words).returncode == run_setup.EXIT_WAITING
    assert len(list((here / "traces/tiny/profiles").iterdir())) == 1
    assert "ATen: aten.relu.default×1" in (here / FIRST / "prompt.md").read_text()
    answers(here / "ex", "relu-cpu-cpp", ANSWER % 20)
    assert cgins(here, "runs", "resume").returncode == run_setup.EXIT_WAITING
    (run,) = runs_in(here / ".cgins/runs")
    first = proposal.read(run / "proposals/relu-cpu-cpp")
    assert "repeat < 20" in first.files["kernels/relu.cpp"].decode()

    other = shutil.copytree(here, tmp_path / "other")
    given_up = cgins(other, "runs", "resume", "--give-up")
    assert given_up.returncode == 0, given_up.stderr
    assert (other / run.relative_to(here) / "proposals/relu-cpu-cpp").is_dir()

    answers(here / "ex", "relu-cpu-cpp-faster", ANSWER % 1)
    assert cgins(here, "runs", "resume").returncode == run_setup.EXIT_WAITING
    done = cgins(here, "runs", "resume", "--give-up")
    assert done.returncode == 0, done.stderr
    (folder,) = (run / "proposals").iterdir()
    faster = proposal.read(folder)
    assert "repeat < 1;" in faster.files["kernels/relu.cpp"].decode()
    assert (faster.proposal.goal, faster.proposal.title) == (first.proposal.goal, first.proposal.title)
    assert "relu:" in faster.files["cgins.yaml"].decode()
    shown = cgins(here, "runs", "show").stdout
    assert shown.count(f"next: cgins proposal apply .cgins/runs/{run.name}/proposals/relu-cpu-cpp") == 1
    assert "as fast as the incumbent" in shown
    assert "is done: cgins runs show" in cgins(here, "runs", "resume").stderr


def test_of_two_accepted_kernels_the_faster_one_counts(tmp_path: Path) -> None:
    """The first one's proposal is shown until there is another, and a search that finds nothing is no failure."""
    config = tmp_path / "cgins.yaml"
    first = journals.target(goal="generate")
    faster = journals.target(goal="optimise", improves=first.name)
    assert faster.name == "gelu-cpu-cpp-faster"
    run = journals.journal(config, first, faster)
    assert run.first(faster) == run.first(first) == first
    assert (run.next(first), run.next(faster)) == (faster, None)
    assert run.proposal(first) == run.proposal(faster)

    journals.settle(run, first, "accepted", {"kernels/gelu.cpp": "!"})
    assert run_status.done(run) is None
    journals.settle(run, faster, "failed", {})
    done = run_status.done(Journal.read_only(run.folder))
    assert done is not None
    assert [bool(result.proposal) for result in done.results] == [True, False]
    assert run_setup.exit_code(done) == 0

    journals.settle(run, faster, "accepted", {"kernels/gelu.cpp": "!!"})
    assert run_status.is_proposed(run, first)
    assert not run_status.is_proposed(run, faster)
