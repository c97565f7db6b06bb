"""A project whose kernels break their workers, and what each of them must be called."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import yaml

import pytest_cgins
from pytest_cgins import config
from pytest_cgins.core.case import Case
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.gate.evaluate import Evaluator

RELU = "torch.nn.functional.relu"
RIGHT = "right"
LEAVES = "import os\nos._exit(0)\ndef relu(input): ...\n"
EXITS = "import sys\nsys.exit(0)\ndef relu(input): ...\n"
BAD_ALLOC = """\
// cgins: relu(Tensor input) -> Tensor
#include <cgins.h>
#include <vector>
extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  std::vector<char> all(size_t(cgins::numel(input)) << 48);
  cgins::data<float>(out)[0] = all[size_t(cgins::numel(input))];
  return 0;
}
"""


@dataclass(frozen=True)
class Fault:
    """One way to break a worker."""

    name: str
    """Name of the kernel that does it."""
    target: str
    """`module:function`, or a C++ source."""
    reason: Reason
    """What the verdict must be."""
    on_gpu_only: bool = False
    """Whether it needs a GPU."""


FAULTS = (
    Fault("crash", "faulty:segfault", Reason.CRASHED),
    Fault("arithmetic", "faulty:arithmetic", Reason.CRASHED),
    Fault("abort", "faulty:abort", Reason.ABORTED),
    Fault("os-exit", "faulty:hard_exit", Reason.EXITED),
    Fault("sys-exit", "faulty:soft_exit", Reason.EXITED),
    Fault("os-exit-at-import", "leaves:relu", Reason.EXITED),
    Fault("sys-exit-at-import", "exits:relu", Reason.EXITED),
    Fault("hang", "faulty:hang", Reason.TIMED_OUT),
    Fault("hang-in-c", "faulty:hang_in_c", Reason.TIMED_OUT),
    Fault("memory-grows", "faulty:grows", Reason.OUT_OF_MEMORY),
    Fault("memory-error", "faulty:memory_error", Reason.OUT_OF_MEMORY),
    Fault("torch-allocation", "faulty:host_allocation", Reason.OUT_OF_MEMORY),
    Fault("bad-alloc", "bad_alloc.cpp", Reason.OUT_OF_MEMORY),
    Fault("stdout-flood", "faulty:floods_stdout", Reason.OUTPUT_FLOOD),
    Fault("stderr-flood", "faulty:floods_stderr", Reason.OUTPUT_FLOOD),
    Fault("fork-bomb", "faulty:forks", Reason.PROCESS_FLOOD),
    Fault("daemons", "faulty:daemons", Reason.PROCESS_FLOOD),
    Fault("closed-pipe", "faulty:closes", Reason.CONNECTION_CLOSED),
    Fault("closed-pipe-returns", "faulty:closes_and_returns", Reason.CONNECTION_CLOSED),
    Fault("forged-answer", "faulty:forges", Reason.FORGED_ANSWER),
    Fault("hang-on-gpu", "faulty:hang_on_the_gpu", Reason.TIMED_OUT, on_gpu_only=True),
    Fault("illegal-address", "faulty:illegal_address", Reason.ILLEGAL_ADDRESS, on_gpu_only=True),
    Fault("device-assert", "faulty:device_assert", Reason.DEVICE_ASSERT, on_gpu_only=True),
    Fault("device-allocation", "faulty:device_allocation", Reason.OUT_OF_MEMORY, on_gpu_only=True),
)


@dataclass(frozen=True)
class Outcome:
    """What became of a session of right cases with one faulty between them."""

    fault: Fault
    """Which."""
    status: Status
    """Status of the faulty case."""
    reason: Reason
    """Its reason."""
    cases_lost: int
    """Cases that did not pass, of all; 1 is the faulty one."""
    seconds: float
    """Until the faulty case's verdict."""
    recovery_seconds: float
    """From then until the next case's verdict, which a fresh worker has to be started for."""
    others_equal: bool
    """Whether all other cases have what they had in the session without the fault."""


def faults_of(device: str) -> list[Fault]:
    """Those that a device can have; a launcher for the CPU is no kernel of a GPU."""
    on_gpu = device == "cuda"
    return [
        fault
        for fault in FAULTS
        if (on_gpu or not fault.on_gpu_only) and not (on_gpu and fault.target.endswith(".cpp"))
    ]


def make(folder: Path, device: str) -> config.Config:
    """Write the project into an empty folder, and load its configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    with pytest_cgins.record(folder / "traces/tiny", ops=[RELU]):
        torch.nn.functional.relu(torch.linspace(-1, 1, 4096).reshape(64, 64))
    shutil.copy(Path(__file__).with_name("faulty.py"), folder)
    for name, text in {"leaves.py": LEAVES, "exits.py": EXITS, "bad_alloc.cpp": BAD_ALLOC}.items():
        (folder / name).write_text(text)
    targets = {RIGHT: "faulty:right", **{fault.name: fault.target for fault in faults_of(device)}}
    kernels = {
        name: {
            "op": RELU,
            "implementations": [
                {"name": "one", "device": device, "source" if target.endswith(".cpp") else "target": target}
            ],
        }
        for name, target in targets.items()
    }
    document = {"version": 1, "traces": ["traces/tiny"], "kernels": kernels}
    file = folder / "cgins.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return config.load(file)


def without_times(evaluation: Evaluation) -> Evaluation:
    """What must not depend on the machine's load."""
    return replace(evaluation, seconds=0.0, build_seconds=0.0)


def session(evaluator: Evaluator, fault: Fault, expected: Evaluation) -> Outcome:
    """Evaluate a right case, the faulty one, and two right ones after it.

    Args:
        evaluator: of the project; its workers go on to the next session.
        fault: which.
        expected: the right case's evaluation in a session without faults, without times.
    """
    cases: dict[str, Case] = {case.kernel: case for case in evaluator.cases()}
    before = evaluator.evaluate(cases[RIGHT])
    faulty = evaluator.evaluate(cases[fault.name])
    ended = time.monotonic()
    after = [evaluator.evaluate(cases[RIGHT])]
    recovery_seconds = time.monotonic() - ended
    after.append(evaluator.evaluate(cases[RIGHT]))
    others = [before, *after]
    return Outcome(
        fault=fault,
        status=faulty.verdict.status,
        reason=faulty.verdict.reason,
        cases_lost=sum(one.verdict.status is not Status.PASSED for one in [*others, faulty]),
        seconds=faulty.seconds,
        recovery_seconds=recovery_seconds,
        others_equal=all(without_times(one) == expected for one in others),
    )


def run(
    folder: Path, device: str, faults: Sequence[Fault], *, timeout_s: float, probes: str = "full"
) -> list[Outcome]:
    """All sessions, one after the other, and before them one without a fault."""
    evaluator = Evaluator(make(folder, device), seed=3, timing=False, timeout_s=timeout_s, probes=probes)
    try:
        right = next(case for case in evaluator.cases() if case.kernel == RIGHT)
        expected = without_times(evaluator.evaluate(right))
        assert expected.verdict.status is Status.PASSED, expected.verdict.message
        return [session(evaluator, fault, expected) for fault in faults]
    finally:
        evaluator.close()
