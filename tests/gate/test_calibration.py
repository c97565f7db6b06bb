"""What is known of a device's noise: kept, found again, and used."""

from __future__ import annotations

import json
import logging
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_cgins.core import documents
from pytest_cgins.core.session_report import Environment
from pytest_cgins.gate import calibration
from pytest_cgins.gate.calibration import (
    BOUNDS_NS,
    Calibration,
    Calibrations,
    Found,
    SizeClass,
    contents,
    key,
    noise_of,
    size_class,
    store,
    stored,
)
from pytest_cgins.gate.case_timing import Noise

GPU = Environment(
    device="cuda", device_name="NVIDIA T", device_uuid="GPU-1", python="3.11.2", torch="2.13", driver="580",
    host_cores=8, sm_count=132, memory_nbytes=2**37, clock_policy="default", protocol=1,
)  # fmt: skip
CPU = Environment(device="cpu", device_name="CPU T", python="3.11.2", torch="2.13", host_cores=2, protocol=1)


def a_class(name: str, spread: float, longer: float = 1.0) -> SizeClass:
    return SizeClass(
        name=name, cases=("k/cpu-one/p/s",), processes=10, blocks=64, longer=longer, spread=spread,
        spread_upper=2 * spread, sigma=0.01, rho=0.01, rho_error=0.04, offset=0.001,
    )  # fmt: skip


def made(environment: Environment = GPU, *classes: SizeClass, at_s: float = 1e9) -> Calibration:
    return Calibration(
        version=1, key=key(environment), cgins="0.1", measured_at_s=at_s, seconds=60.0,
        classes=classes or (a_class("under-3us", 0.01), a_class("30-to-150us", 0.002, 2.0)),
    )  # fmt: skip


def test_what_is_stored_is_found(tmp_path: Path) -> None:
    """For the same device, in a folder that was not there; a second one takes the first one's place."""
    file = store(made(), tmp_path / "new")
    assert stored(GPU, contents(tmp_path / "new")) == Found(made())
    later = made(GPU, a_class("over-150us", 0.1), at_s=2e9)
    assert store(later, tmp_path / "new") == file
    assert stored(GPU, contents(tmp_path / "new")) == Found(later)
    assert list((tmp_path / "new").iterdir()) == [file]
    assert file.name == f"{key(GPU).digest}.json"


def test_two_gpus_of_a_kind_share_one(tmp_path: Path) -> None:
    """Runners of a pool need not each be calibrated."""
    store(made(), tmp_path)
    assert stored(replace(GPU, device_uuid="GPU-2"), contents(tmp_path)).calibration == made()


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (replace(GPU, driver="581"), "driver 580 → 581"),
        (replace(GPU, torch="2.14"), "torch 2.13 → 2.14"),
        (replace(GPU, clock_policy="applications-1410-mhz"), "clocks default → applications-1410-mhz"),
        (replace(GPU, driver="581", sm_count=66), "SMs 132 → 66, driver 580 → 581"),
    ],
)
def test_what_has_changed_is_told(tmp_path: Path, other: Environment, said: str) -> None:
    """A calibration of the same device under another driver is not used; the latest says what it was."""
    store(made(replace(GPU, driver="1"), at_s=1e8), tmp_path)
    store(made(), tmp_path)
    found = stored(other, contents(tmp_path))
    assert found == Found(None, f"NVIDIA T was calibrated under other conditions: {said}")


def test_another_device_says_nothing(tmp_path: Path) -> None:
    """Nor does a folder that is not there."""
    store(made(), tmp_path)
    for folder in (tmp_path, tmp_path / "none"):
        assert stored(CPU, contents(folder)) == Found(None, "CPU T was not calibrated")


def test_a_file_under_another_name(tmp_path: Path) -> None:
    """A renamed one is not taken for another environment's."""
    changed = replace(GPU, driver="581")
    store(made(), tmp_path).rename(tmp_path / f"{key(changed).digest}.json")
    assert stored(changed, contents(tmp_path)).calibration is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("version", 2), ("classes", []), ("seconds", None), ("measured_at_s", "now"), ("more", 1),
        ("key", {"digest": key(GPU).digest, "parts": {}}), ("spread", -0.01), ("spread", 1e999), ("rho", 1.5),
        ("longer", 3.0), ("longer", 1e9), ("name", "huge"), ("name", "30-to-150us"),
    ],
)  # fmt: skip
def test_damaged_files_are_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, value: object
) -> None:
    """What no calibration holds is passed over, with a reason."""
    file = store(made(), tmp_path)
    plain = documents.dump_python(made())
    (plain if name in plain or name == "more" else plain["classes"][0])[name] = value
    file.write_text(json.dumps(plain))
    with caplog.at_level(logging.WARNING, "pytest_cgins"):
        assert stored(GPU, contents(tmp_path)) == Found(None, "NVIDIA T was not calibrated")
    assert f"the calibration in {file} is not used: " in caplog.text


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 4000), put=st.binary(max_size=30))
def test_no_file_stops_a_run(tmp_path: Path, cut: int, put: bytes) -> None:
    """Torn or overwritten anywhere, it is a calibration or none."""
    file = store(made(), tmp_path)
    data = file.read_bytes()
    file.write_bytes(data[:cut] + put + data[cut + len(put) :] if cut % 2 else data[:cut] + put)
    found = stored(GPU, contents(tmp_path))
    assert (found.calibration is None) == bool(found.why)


def test_a_folder_in_the_place_of_a_file(tmp_path: Path) -> None:
    """It cannot be read, and stops nothing; a file in the folder's place can hold none."""
    (tmp_path / f"{key(GPU).digest}.json").mkdir()
    assert stored(GPU, contents(tmp_path)).calibration is None
    (tmp_path / "file").touch()
    assert stored(GPU, contents(tmp_path / "file")).calibration is None
    with pytest.raises(OSError, match="file"):
        store(made(), tmp_path / "file")


def test_the_default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lies beside the builds."""
    monkeypatch.setenv("CGINS_CACHE_DIR", str(tmp_path))
    assert calibration.default_folder() == tmp_path / "calibration"
    monkeypatch.delenv("CGINS_CACHE_DIR")
    assert calibration.default_folder().name == "calibration"


@given(st.floats(1e-9, 1e18))
def test_every_call_has_one_class(ns: float) -> None:
    """Its bounds hold it, and no other's do."""
    name = size_class(ns)
    assert [one for one, (least, below) in BOUNDS_NS.items() if least <= ns < below] == [name]


@pytest.mark.parametrize(
    ("ns", "noise"),
    [
        (100, Noise(0.02)), (2999, Noise(0.02)), (3000, Noise(0.02)), (30_000, Noise(0.004, 2.0)),
        (1e6, Noise(0.004, 2.0)),
    ],
)  # fmt: skip
def test_calls_of_each_length_have_noise(ns: float, noise: Noise) -> None:
    """The upper bound of their class' spread, else of the next shorter one."""
    assert noise_of(Found(made()))(ns) == noise


def test_calls_shorter_than_any_have_that_of_the_shortest() -> None:
    """Something is better than nothing."""
    assert noise_of(Found(made(GPU, a_class("over-150us", 0.03))))(10.0) == Noise(0.06)


def test_without_a_calibration_noise_is_assumed() -> None:
    """And says why."""
    assert noise_of(Found(None, "T was not calibrated"))(10.0) == Noise(
        spread_upper=0.007, why="T was not calibrated"
    )
    assert noise_of(Found(None, "T"))(1e6).spread_upper == 0.003


def test_what_a_kernel_stores_meanwhile_is_not_used(tmp_path: Path) -> None:
    """A session holds on to what was there before it ran anything: another calibration would let anything pass."""
    store(made(), tmp_path)
    known = Calibrations(tmp_path)
    store(made(GPU, a_class("under-3us", 0.3), at_s=2e9), tmp_path)
    store(made(CPU), tmp_path)
    assert known.noise(GPU)(10.0) == Noise(0.02)
    assert known.noise(CPU)(10.0).why == "CPU T was not calibrated"
    assert Calibrations(tmp_path).noise(GPU)(10.0) == Noise(0.6)


def test_not_a_number_is_no_calibration() -> None:
    """Times and spreads are finite."""
    with pytest.raises(ValueError, match="spread is nan: it must be finite"):
        replace(a_class("under-3us", 0.01), spread=math.nan)
    with pytest.raises(ValueError, match="a time is not finite"):
        replace(made(), seconds=math.inf)
