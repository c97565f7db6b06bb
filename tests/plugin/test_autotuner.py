"""Triton's autotuners in the gate: each config is verified, kernel and base get one choice, and choices are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from pytest_cgins.core.measurement import TunedConfig
from pytest_cgins.recording.record import record
from tests.repository import commit

if TYPE_CHECKING:
    from conftest import Run

pytest.importorskip("triton")

CONFIG = """
version: 1
traces: [traces/net]
gate: {max_blocks: 10}
kernels:
  right: {op: torch.neg, target: "tuned:right", interpret: true}
  wrong: {op: torch.neg, target: "tuned:wrong", interpret: true}
"""
# A timer of its own, whose choice depends on the revision: Triton's needs a GPU.
TUNED = """
import torch
import triton
import triton.language as tl

CALLS = [0]

def bench(call, quantiles):
    call()
    CALLS[0] += 1
    return [float(-CALLS[0] if __name__.startswith("_cgins_base") else CALLS[0])] * 3

def tuned(function):
    configs = [triton.Config({"BLOCK": block}) for block in (64, 128)]
    return triton.autotune(configs, key=["n"], do_bench=bench)(triton.jit(function))

@tuned
def negate(x, y, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + index, -tl.load(x + index, mask=index < n), mask=index < n)

@tuned
def negate_some(x, y, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * 64 + tl.arange(0, BLOCK)
    value = tl.load(x + index, mask=index < n)
    tl.store(y + index, -value if BLOCK == 64 else 0.5 - value, mask=index < n)

def run(kernel, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y

def right(input):
    return run(negate, input)

def wrong(input):
    return run(negate_some, input)
"""


def test_every_config_is_verified_and_one_is_timed(tmp_path: Path, run: Callable[..., Run]) -> None:
    """A config that is wrong and was not chosen fails by its name; the base, which chose otherwise, gets the kernel's."""
    with record(tmp_path / "traces" / "net", ops=["torch.neg"]):
        torch.neg(torch.randn(300))
    for name, text in (("cgins.yaml", CONFIG), ("tuned.py", TUNED), ("pytest.ini", "[pytest]\n")):
        (tmp_path / name).write_text(text)
    commit(tmp_path)
    (tmp_path / "tuned.py").write_text(f"{TUNED}\n# changed\n")
    options = ("--cgins-baseline=HEAD", "--cgins-probes=fast", "--cgins-json=report.json", "-q")
    done = run(tmp_path, "--cgins", *options, env={"TRITON_INTERPRET": ""})
    evaluations = {name.split("/")[0]: evaluation for name, evaluation in done.evaluations().items()}
    verdict = evaluations["wrong"]["verdict"]
    assert (verdict["status"], verdict["reason"]) == ("INCORRECT", "wrong-config"), done.out
    assert "with config BLOCK: 128, " in verdict["message"]
    assert "of negate_some, which the autotuner may choose" in verdict["message"]
    right = evaluations["right"]
    assert right["verdict"]["status"] in ("SAME", "INCONCLUSIVE", "FASTER"), done.out
    (choice,) = [
        tuned
        for tuned in right["correctness"]["tuned"]
        if tuned["kernel"] == "negate" and "300" in tuned["key"]
    ]
    assert choice["config"].startswith("BLOCK: 64")
    assert choice["configs"] == 2
    measurement = right["measurement"]
    assert [tuned["config"] for tuned in measurement["base_tuned"]] == [choice["config"]]
    assert any(
        note.startswith("the autotuner of negate chose BLOCK: 128,")
        and "was given the kernel's: BLOCK: 64," in note
        for note in measurement["notes"]
    )


def test_a_choice_that_differs_between_processes_is_told() -> None:
    """Who reads two reports knows that their times may be those of two configs."""
    here, there = (
        TunedConfig(kernel="f", key="(8,)", config=f"BLOCK: {block}", configs=2) for block in (64, 128)
    )
    assert here.unlike([there]) == (
        "the autotuner of f is unstable: it chose BLOCK: 64 in one process and BLOCK: 128 in another"
    )
    assert not here.unlike([here])
    assert not here.unlike([replace(there, key="(16,)")])
