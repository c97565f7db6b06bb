"""Peaks of a session's devices: those that a case passes are measured again."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest

from pytest_cgins.core.measurement import Arm, Measurement, Roofline
from pytest_cgins.core.session_report import Environment
from pytest_cgins.run.device_peaks import DevicePeaks
from pytest_cgins.timing.measured_peaks import MeasuredPeaks, key, store, stored

CPU = Environment(device="cpu", device_name="CPU T", python="3.11", torch="2.13", host_cores=2)
BUSY = MeasuredPeaks(
    key=key(CPU), copy_bytes_per_s=2e9, matmul_flops_per_s={"float32": 1e10, "bfloat16": 9e10},
    measured_at_s=1e9, seconds=0.4,
)  # fmt: skip
QUIET = replace(BUSY, copy_bytes_per_s=1e9, matmul_flops_per_s={"float32": 8e10}, measured_at_s=1e9 + 60)
ARM = Arm(
    name="kernel", samples_ns_per_call=(1e4,), calls_per_batch=1, median_ns_per_call=1e4, iqr_ns_per_call=0.0
)  # fmt: skip
MEASURED = Measurement(
    method="perf-counter", cache="cold", orders="KTTK", kernel=ARM, torch=replace(ARM, name="torch"),
    speedup_vs_torch=1.0, speedup_low=1.0, speedup_high=1.0,
)  # fmt: skip


@pytest.mark.parametrize(("flops_per_s", "share"), [(7e10, 0.875), (1.1e10, 1.1)])
def test_peaks_that_a_case_passes_are_measured_again(
    flops_per_s: float, share: float, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    """Once a run, and the larger of each is kept for later runs: a busy device's peaks come out too low."""
    monkeypatch.setenv("CGINS_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("time.time", lambda: 1e9 + 120)
    store(BUSY)
    measured: list[str] = []

    def measure(device: str) -> MeasuredPeaks:
        measured.append(device)
        return QUIET

    def draw(peaks: MeasuredPeaks) -> Measurement:
        rate = peaks.flops_per_s_of("float32")
        roofline = Roofline(
            nbytes=1, flops=1, source="signature", bound="compute", share_of_bandwidth=0.0,
            peak_bytes_per_s=peaks.copy_bytes_per_s, peak_flops_per_s=rate, share_of_compute=flops_per_s / rate,
        )  # fmt: skip
        return replace(MEASURED, roofline=roofline)

    peaks = DevicePeaks(lambda _: CPU, measure, lambda _: nullcontext())
    for _ in range(2):
        found = peaks.roofline("cpu", MEASURED, draw).roofline
        assert found is not None
        assert found.share_of_compute == pytest.approx(share)
    raised = share < 1
    assert measured == ["cpu"] * raised
    larger = {"float32": 8e10, "bfloat16": 9e10}
    assert stored(CPU) == (
        replace(QUIET, copy_bytes_per_s=2e9, matmul_flops_per_s=larger) if raised else BUSY
    )
