"""What becomes of a kernel that dies on a set of inputs, or breaks its process: on real workers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.run.blinding import Blinding
from pytest_cgins.run.early_verdict import EndedError
from pytest_cgins.run.kernel_run import KernelRuns, Pair
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.run.process import Reply
from pytest_cgins.verify.messages import KernelAnswers, PackedInputs, RunKernel, read
from tests.run.relu import python_kernel, relu_set

KERNELS = """
import os

import torch

from pytest_cgins.run import verification_service

rows = []


def dies_on_three_rows_after_seven(input):
    rows.append(len(input))
    if len(input) == 3 and 7 in rows:
        os.abort()
    return input.clamp(min=0)


def lacks_memory_on_three_rows_after_seven(input):
    rows.append(len(input))
    if len(input) == 3 and 7 in rows:
        os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\\n")
        os.abort()
    return input.clamp(min=0)


def breaks_the_gpu_on_seven_rows(input):
    if len(input) == 7:
        verification_service.is_lost = lambda device: True
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    return input.clamp(min=0)


def breaks_the_gpu_once(input):
    rows.append(len(input))
    if rows == [7]:
        verification_service.is_lost = lambda device: True
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    return input.clamp(min=0)


def finds_the_device_full_the_second_time(input):
    rows.append(len(input))
    if rows.count(len(input)) > 2:
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 26.75 MiB is "
            "free. Including non-PyTorch memory, this process has 520.00 MiB memory in use."
        )
    return input.clamp(min=0)


def dies_on_seven_rows_and_tampers_on_six(input):
    if len(input) == 7:
        os.abort()
    if len(input) == 6:
        torch.add = torch.sub
    return input.clamp(min=0)
"""
CORE, PROBES = ("recorded", "fresh"), {"size 7": 7, "size 6": 6}
Ran = tuple[Reply[KernelAnswers], list[str]]


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool() as pool:
        yield pool


@pytest.fixture
def run(pool: WorkerPool, tmp_path: Path) -> Callable[..., Ran]:
    """Runs a function of KERNELS on two sets of three rows and on probes' sets, that of seven rows first of all."""
    module = f"kernels_of_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(KERNELS)

    def call(function: str, *probes: str) -> Ran:
        kernel = python_kernel(tmp_path, module, function)
        pairs = [_pair(name, 3) for name in CORE]
        pairs += [_pair(name, rows, probe="sizes") for name, rows in PROBES.items()]
        request = RunKernel(
            kernel=kernel, device="cpu", import_root=str(tmp_path), probes=("integrity", *probes)
        )
        return KernelRuns(pool, seed=_seed(pairs, kernel.key), timeout_s=60).run(
            "verification", request, pairs
        )

    return call


def _pair(name: str, rows: int, **more: Any) -> Pair:
    inputs, buffer = relu_set(torch.ones(rows, 2), name=name)
    return read(PackedInputs, inputs | more), buffer


def _seed(pairs: list[Pair], key: str) -> int:
    """One with which the set of seven rows is the first that the worker gets."""
    for seed in itertools.count():
        blinding = Blinding(pairs, seed=f"{seed}/{key}")
        if blinding.sets[0].tensors == pairs[len(CORE)][0].tensors:
            return seed
    raise AssertionError


def phases(reply: Reply[KernelAnswers]) -> dict[str, str]:
    """Of the error that there is for every set; "" for none."""
    return {answer.name: answer.error.phase if answer.error else "" for answer in reply.result.sets}


@pytest.mark.exam
def test_a_death_that_does_not_come_again_in_parts_is_not_forgotten(run: Callable[..., Ran]) -> None:
    """A kernel that dies by what it met before is told on, though every set alone gets its answer."""
    with pytest.raises(EndedError) as caught:
        run("dies_on_three_rows_after_seven")
    verdict = caught.value.verdict
    assert (verdict.status, verdict.reason) == (Status.RUNTIME_ERROR, Reason.ABORTED)
    assert verdict.message.startswith("on all sets of inputs in one process, not in parts: ")
    assert "SIGABRT" in verdict.message


def test_what_all_sets_take_together_is_noted(run: Callable[..., Ran]) -> None:
    """Memory that suffices for every set, and not for all of them at once, is no failure of the kernel."""
    reply, (note,) = run("lacks_memory_on_three_rows_after_seven")
    assert not any(phases(reply).values())
    assert note.startswith("it answered on its sets of inputs in parts; on all of them at once: ")


def test_a_set_that_breaks_the_process_costs_the_others_nothing(run: Callable[..., Ran]) -> None:
    """What could not be run after an error that sticks to the GPU is run without the probe's set that caused it."""
    reply, _ = run("breaks_the_gpu_on_seven_rows")
    assert phases(reply) == {"recorded": "", "fresh": "", "size 7": "died", "size 6": ""}


def test_an_error_of_the_gpu_that_does_not_come_again_is_not_forgotten(run: Callable[..., Ran]) -> None:
    """A kernel that breaks its process only in the first run of all is told on."""
    with pytest.raises(EndedError, match="not in parts: on inputs with size 7: ") as caught:
        run("breaks_the_gpu_once")
    assert caught.value.verdict.reason is Reason.ILLEGAL_ADDRESS


def test_what_one_part_did_is_not_hidden_by_another(run: Callable[..., Ran]) -> None:
    """Facts of a probe's set that is run alone are kept beside those of the other sets."""
    reply, _ = run("dies_on_seven_rows_and_tampers_on_six")
    assert phases(reply) == {"recorded": "", "fresh": "", "size 7": "died", "size 6": ""}
    assert any("torch.add" in fact["what"] for fact in reply.result.observed["integrity"])


def test_memory_that_others_took_before_a_call_was_repeated_is_not_the_kernels(
    run: Callable[..., Ran],
) -> None:
    """An honest kernel ended RUNTIME_ERROR, since a test beside it had taken the whole GPU meanwhile."""
    with pytest.raises(EndedError) as caught:
        run("finds_the_device_full_the_second_time", "repeat")
    verdict = caught.value.verdict
    assert (verdict.status, verdict.reason) == (Status.INFRASTRUCTURE, Reason.OUT_OF_MEMORY)
    assert "other processes held 139.3 GiB of the device's memory" in verdict.message
