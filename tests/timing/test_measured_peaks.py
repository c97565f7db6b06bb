"""What a device was measured to reach: kept, found again, and measured."""

from __future__ import annotations

import json
import logging
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pytest_cgins.core import documents
from pytest_cgins.core.environment_key import key_of
from pytest_cgins.core.session_report import Environment
from pytest_cgins.timing import measured_peaks, peak_measurement
from pytest_cgins.timing.devices import timed_device
from pytest_cgins.timing.environment import describe
from pytest_cgins.timing.measured_peaks import MOST_AGE_S, MeasuredPeaks, key, store, stored
from pytest_cgins.verify.judge import JudgeService

GPU = Environment(
    device="cuda", device_name="NVIDIA T", device_uuid="GPU-1", python="3.11", torch="2.13", driver="580", host_cores=8
)  # fmt: skip
CPU = Environment(device="cpu", device_name="CPU T", python="3.11", torch="2.13", host_cores=2)
PEAKS = MeasuredPeaks(
    key=key(GPU), copy_bytes_per_s=4e12, matmul_flops_per_s={"float32": 5e13, "tf32": 4e14, "bfloat16": 8e14},
    measured_at_s=1e9, seconds=0.4,
)  # fmt: skip
NOW_S = 1e9 + 60


def test_what_is_stored_is_found(tmp_path: Path) -> None:
    """Peaks are found again for the same device, and for no other; nothing else is left in the folder."""
    store(PEAKS, tmp_path / "new")
    assert stored(GPU, tmp_path / "new", now_s=NOW_S) == PEAKS
    assert stored(CPU, tmp_path / "new", now_s=NOW_S) is None
    assert [one.name for one in (tmp_path / "new").iterdir()] == [f"{PEAKS.key.digest}.json"]


@pytest.mark.parametrize(
    "other",
    [
        replace(GPU, device_uuid="GPU-2"), replace(GPU, driver="581"), replace(GPU, torch="2.14"),
        replace(GPU, clock_policy="applications-1410-mhz"),
    ],
)  # fmt: skip
def test_another_device_or_version_has_its_own(tmp_path: Path, other: Environment) -> None:
    """A GPU's UUID, driver, torch and clock policy are the key."""
    store(PEAKS, tmp_path)
    assert stored(other, tmp_path, now_s=NOW_S) is None


def test_cores_of_a_cpu_are_in_the_key() -> None:
    """What a container is given of a CPU changes what it reaches; of a GPU's host it does not."""
    assert key(CPU) != key(replace(CPU, host_cores=4))
    assert key(GPU) == key(replace(GPU, host_cores=4))


@pytest.mark.parametrize(("age_s", "found"), [(MOST_AGE_S - 1, True), (MOST_AGE_S + 1, False), (-9e4, False)])
def test_old_peaks_are_measured_again(tmp_path: Path, age_s: float, *, found: bool) -> None:
    """After 30 days, or from a clock that was set back, there are none."""
    store(PEAKS, tmp_path)
    assert (stored(GPU, tmp_path, now_s=1e9 + age_s) is not None) is found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("copy_bytes_per_s", -1), ("copy_bytes_per_s", 1e30), ("copy_bytes_per_s", "4e12"), ("more", 1),
        ("matmul_flops_per_s", {"float32": 0}), ("matmul_flops_per_s", {"int4": 1e12}), ("seconds", None),
        ("key", {"digest": PEAKS.key.digest, "parts": {}}),
    ],
)  # fmt: skip
def test_damaged_files_are_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, value: object
) -> None:
    """What no device reaches, or is no such document, is passed over and logged."""
    store(PEAKS, tmp_path)
    file = tmp_path / f"{PEAKS.key.digest}.json"
    file.write_text(json.dumps({**documents.dump_python(PEAKS), name: value}))
    with caplog.at_level(logging.INFO, "pytest_cgins"):
        assert stored(GPU, tmp_path, now_s=NOW_S) is None
    assert f"measured peaks in {file} are not used: " in caplog.text


def test_a_file_of_another_key_is_not_used(tmp_path: Path) -> None:
    """A file that was renamed is not taken for another device's."""
    store(PEAKS, tmp_path)
    other = replace(GPU, device_uuid="GPU-2")
    (tmp_path / f"{PEAKS.key.digest}.json").rename(tmp_path / f"{key(other).digest}.json")
    assert stored(other, tmp_path, now_s=NOW_S) is None


def test_a_folder_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing fails for it: the next run measures again."""
    (tmp_path / "file").touch()
    with caplog.at_level(logging.INFO, "pytest_cgins"):
        store(PEAKS, tmp_path / "file")
    assert "measured peaks are not kept in" in caplog.text


def test_the_default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lies beside the builds."""
    monkeypatch.setenv("CGINS_CACHE_DIR", str(tmp_path))
    assert measured_peaks.default_folder() == tmp_path / "peaks"
    monkeypatch.delenv("CGINS_CACHE_DIR")
    assert measured_peaks.default_folder().name == "peaks"


@pytest.mark.parametrize(
    ("dtype", "tf32", "expected"),
    [("float32", False, 5e13), ("float32", True, 4e14), ("bfloat16", True, 8e14), ("float16", False, 0.0), ("int8", False, 0.0)],
)  # fmt: skip
def test_peaks_by_dtype(dtype: str, expected: float, *, tf32: bool) -> None:
    """float32 is held against TF32 only where that is allowed; what was not measured is 0."""
    assert PEAKS.flops_per_s_of(dtype, tf32=tf32) == expected


def test_an_emulated_type_reaches_what_float32_does() -> None:
    """A CPU without arithmetic of bfloat16 multiplies it a hundred times slower than a kernel that converts."""
    emulated = replace(PEAKS, matmul_flops_per_s={"float32": 1.4e11, "bfloat16": 1.3e9})
    assert emulated.flops_per_s_of("bfloat16") == 1.4e11
    assert emulated.flops_per_s_of("float16") == 0


@pytest.mark.exam
def test_a_cpu_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service measures this machine: copies slower than its caches, float32 within 10 GFLOP/s and 100 TFLOP/s."""
    monkeypatch.setattr(peak_measurement, "CPU_BUDGET_S", 0.01)
    answer, buffers = JudgeService().peaks({"device": "cpu"}, [])
    found = documents.load_python(MeasuredPeaks, answer["peaks"])
    assert buffers == []
    assert found.key == key(describe("cpu"))
    assert 1e8 < found.copy_bytes_per_s < 1e13
    assert 1e8 < found.matmul_flops_per_s["float32"] < 1e14
    assert set(found.matmul_flops_per_s) <= {"float32", "bfloat16"}
    assert 0 < found.seconds < 60


@pytest.mark.exam
def test_settings_are_left_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """The precision of products is set for the measurement alone."""
    monkeypatch.setattr(peak_measurement, "CPU_BUDGET_S", 0.0)
    torch.set_float32_matmul_precision("medium")
    try:
        peak_measurement.measure("cpu")
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_without_memory_there_are_no_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that is full has no peaks, and the judge goes on."""

    def full(*_: object) -> int:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(peak_measurement, "_copy_nbytes", full)
    assert JudgeService().peaks({"device": "cpu"}, []) == ({"peaks": None}, [])


def test_a_product_that_a_library_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be multiplied has a rate of 0, and is left out."""

    def refuse(*_: object, out: object) -> float:
        raise RuntimeError('"addmm_impl_cpu_" not implemented')

    monkeypatch.setattr(torch, "mm", refuse)
    assert peak_measurement._matmul_flops_per_s(timed_device("cpu"), "float16") == 0


def test_nan_is_no_rate() -> None:
    """A clock that stood still gives no peak."""
    with pytest.raises(ValueError, match="no device reaches nan a second"):
        replace(PEAKS, copy_bytes_per_s=math.nan)
    with pytest.raises(ValueError, match="is not that of"):
        replace(PEAKS, key=replace(key_of({"a": "b"}), digest="0" * 16))
