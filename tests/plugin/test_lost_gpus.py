"""A GPU that is lost in the middle of a session, beside a driver of ours whose GPUs are lost when the test says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_cgins.app.session.lost_gpus import LostGpus
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Reason, Status, Verdict
from tests import cuda_twin
from tests.evaluations import make_evaluation

A, B = (f"GPU-{letter * 8}-{letter * 4}-{letter * 4}-{letter * 4}-{letter * 12}" for letter in "ab")


@pytest.fixture(autouse=True)
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs, and nvidia-smi that lists them."""
    cuda_twin.build(tmp_path)
    listing = tmp_path / "nvidia-smi"
    listing.write_text(
        f'#!/bin/sh\necho "GPU 0: NVIDIA Twin (UUID: {A})"\necho "GPU 1: NVIDIA Twin (UUID: {B})"\n'
    )
    listing.chmod(0o755)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def found(status: Status, message: str = "CUDA error: unspecified launch failure") -> Evaluation:
    evaluation = make_evaluation()
    verdict = Verdict(status=status, reason=Reason.RAISED, message=message, numbers={})
    return replace(evaluation, case=replace(evaluation.case, device="cuda:0"), verdict=verdict)


def test_a_case_of_a_lost_gpu_is_tried_once_on_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lost one is named, with what the driver says of it, and the rest of the session runs on the other."""
    monkeypatch.setenv("TWIN_LOST", "a")
    gpus, tried = LostGpus({"CUDA_VISIBLE_DEVICES": A}), []

    def again() -> Evaluation:
        tried.append(gpus.environment["CUDA_VISIBLE_DEVICES"])
        return found(Status.PASSED, "right")

    verdict = gpus.after(found(Status.RUNTIME_ERROR), A, again).verdict
    assert (verdict.status, tried) == (Status.PASSED, [B])
    assert verdict.message == (
        f"right\n{A} is lost (cuDevicePrimaryCtxRetain: CUDA_ERROR_ECC_UNCORRECTABLE (214)); dmesg names its Xid: "
        f"tried again on {B}"
    )
    assert gpus.environment["CUDA_VISIBLE_DEVICES"] == B


@pytest.mark.parametrize("later", ["", "ab"])
def test_a_case_that_no_gpu_is_left_for_is_an_error_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    """The second is lost before, or with the same case: there is no third try."""
    monkeypatch.setenv("TWIN_LOST", "a" if later else "ab")
    gpus, tried = LostGpus({}), []

    def again() -> Evaluation:
        tried.append(gpus.environment["CUDA_VISIBLE_DEVICES"])
        monkeypatch.setenv("TWIN_LOST", later)
        return found(Status.INFRASTRUCTURE)

    verdict = gpus.after(found(Status.TIMEOUT), A, again).verdict
    assert (verdict.status, verdict.reason) == (Status.INFRASTRUCTURE, Reason.DEVICE_ABSENT)
    assert verdict.message.startswith(f"{A} is lost")
    assert tried == ([B] if later else [])
    assert (f"so is {B}" in verdict.message) == bool(later)


@pytest.mark.parametrize("status", [Status.RUNTIME_ERROR, Status.INCORRECT])
def test_a_kernel_that_fails_on_a_gpu_that_computes_has_failed(status: Status) -> None:
    """Nothing is tried again, and what was found stays."""
    one = found(status)
    assert LostGpus({}).after(one, A, lambda: pytest.fail("tried again")) is one


def test_a_gpu_whose_memory_others_hold_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that filled its device would have taken it out of the session."""
    monkeypatch.setenv("TWIN_FULL", "1")
    gpus = LostGpus({"CUDA_VISIBLE_DEVICES": A})
    failed = found(Status.INFRASTRUCTURE, "other processes held 137.1 GiB")
    assert gpus.after(failed, A, lambda: pytest.fail("it was tried again")) is failed
