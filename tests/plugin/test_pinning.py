"""Which worker of xdist has which GPU, without a GPU."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.app.session import pinning
from pytest_cgins.run import visible_gpus
from pytest_cgins.run.visible_gpus import Gpu

A, B, C = (f"GPU-{letter * 8}-0000-0000-0000-000000000000" for letter in "abc")
PART, OTHER_PART = (f"MIG-{digit * 8}-0000-0000-0000-000000000000" for digit in "12")
PLAIN: tuple[Gpu, ...] = ((A, ()), (B, ()), (C, ()))
DIVIDED: tuple[Gpu, ...] = ((A, (PART, OTHER_PART)), (B, ()))
LISTED = f"""\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: {A})
  MIG 3g.20gb     Device  0: (UUID: {PART})
  MIG 1g.5gb      Device  1: (UUID: {OTHER_PART})
GPU 1: NVIDIA H200 (rev a1) (UUID: {B})
"""


def pinned(worker: str | None, gpus: tuple[Gpu, ...] = PLAIN, visible: str | None = None) -> dict[str, str]:
    return pinning.pinned_environment(
        None if worker is None else {"workerid": worker},
        environ={} if visible is None else {"CUDA_VISIBLE_DEVICES": visible},
        listing=lambda: gpus,
    )


def test_one_gpu_a_worker() -> None:
    """Workers take GPUs in turn, by UUID; more workers than GPUs share them."""
    for worker, gpu in [("gw0", A), ("gw1", B), ("gw2", C), ("gw3", A), ("gw11", C), ("left", A)]:
        assert pinned(worker) == {"CUDA_VISIBLE_DEVICES": gpu}


def test_nothing_to_choose() -> None:
    """Outside of xdist, without a GPU and with a single one nothing is set."""
    assert pinned(None) == {}
    assert pinned("gw1", ()) == {}
    assert pinned("gw1", PLAIN[:1]) == {}
    assert pinned("gw1", visible=B) == {}


def test_nobody_asks_for_gpus_outside_of_xdist() -> None:
    """A run in one process does not wait for nvidia-smi."""

    def listing() -> tuple[Gpu, ...]:
        raise AssertionError

    assert pinning.pinned_environment(None, listing=listing) == {}


@pytest.mark.parametrize(
    ("visible", "choices"),
    [
        (None, [A, B, C]),
        ("2,0", ["2", "0"]),
        (" 1 , 2 ", ["1", "2"]),
        (f"{C},{A}", [C, A]),
        ("GPU-bbbb,GPU-aaaa", ["GPU-bbbb", "GPU-aaaa"]),
        ("0,2,-1,1", ["0", "2"]),
        ("0,1,7,2", ["0", "1"]),
        ("0,1,GPU-dddd,2", ["0", "1"]),
        ("GPU-,0", []),
        ("0,1,0", []),
        ("1", ["1"]),
        ("", []),
        ("-1", []),
    ],
)
def test_a_list_of_the_user_is_kept_to(visible: str | None, choices: list[str]) -> None:
    """Workers divide what CUDA_VISIBLE_DEVICES shows: entries before the first that names no GPU, none twice."""
    assert list(visible_gpus.usable(visible, PLAIN)) == choices
    expected = {"CUDA_VISIBLE_DEVICES": choices[1]} if len(choices) > 1 else {}
    assert pinned("gw1", visible=visible) == expected


def test_parts_of_gpus() -> None:
    """Of a divided GPU each MIG device counts, itself not; a list may name them, in either of NVIDIA's ways."""
    assert visible_gpus.usable(None, DIVIDED) == (PART, OTHER_PART, B)
    assert visible_gpus.usable(f"{OTHER_PART},{PART}", DIVIDED) == (OTHER_PART, PART)
    old = [f"MIG-{A}/1/0", f"MIG-{A}/2/0"]
    assert visible_gpus.usable(",".join(old), DIVIDED) == tuple(old)
    assert visible_gpus.usable("MIG-33333333,1", DIVIDED) == ()


@given(st.lists(st.sampled_from(["0", "1", "2", "3", "-1", "", A, B[:12], "x"])), st.integers(0, 40))
def test_whatever_is_chosen_was_visible(entries: list[str], worker: int) -> None:
    """A worker never gets a GPU that the user has hidden, nor several."""
    found = pinned(f"gw{worker}", visible=",".join(entries))
    assert found == {} or found["CUDA_VISIBLE_DEVICES"] in entries
    assert "," not in found.get("CUDA_VISIBLE_DEVICES", "")


# ---- who is told


def lines(workers: int, gpus: tuple[Gpu, ...] = PLAIN, visible: str | None = None) -> list[str]:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    return pinning.told([f"gw{index}" for index in range(workers)], environ=environ, listing=lambda: gpus)


def test_the_header_says_who_is_where() -> None:
    """A line a GPU, and how many have no worker; nothing where there is nothing to choose."""
    assert lines(4) == [f"cgins: gw0, gw3 on {A}", f"cgins: gw1 on {B}", f"cgins: gw2 on {C}"]
    assert lines(1) == [f"cgins: gw0 on {A}", "cgins: 2 of 3 GPUs idle: -n 3 uses all"]
    assert lines(2, visible="2,0") == ["cgins: gw0 on GPU 2", "cgins: gw1 on GPU 0"]
    assert lines(2, PLAIN[:1]) == lines(2, ()) == lines(2, visible="1") == []


def configured(**options: Any) -> Any:
    values = {
        "--cgins-isolation": "process",
        "--cgins-device": "auto",
        "--cgins-compile-only": False,
        "dist": "load",
        **{
            name.replace("cgins_", "--cgins-").replace("compile_only", "compile-only"): value
            for name, value in options.items()
        },
    }
    return SimpleNamespace(getoption=lambda name, default=None: values.get(name, default))


@pytest.mark.parametrize(
    ("tx", "names"),
    [
        (["popen"] * 2, ["gw0", "gw1"]),
        (["3*popen//python=python3.12", "popen"], ["gw0", "gw1", "gw2", "gw3"]),
        (["popen//id=left//chdir=x", "popen"], ["left", "gw0"]),
        ([], []),
    ],
)
def test_workers_by_name(tx: list[str], names: list[str]) -> None:
    """The controller knows its workers' names from xdist's own options."""
    assert pinning._worker_names(configured(tx=tx)) == names
    assert pinning._worker_names(configured(tx=tx, dist="no")) == []


@pytest.mark.parametrize(
    "option", [{"cgins_isolation": "none"}, {"cgins_device": "cpu"}, {"cgins_compile_only": True}]
)
def test_runs_that_are_not_pinned(option: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without isolation, without CUDA cases and without kernels that run nothing is set or told."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(pinning, "list_gpus", lambda: PLAIN)
    free, bound = configured(tx=["popen"]), configured(tx=["popen"], **option)
    assert pinning.header(free)
    assert pinning.header(bound) == []
    for config in (free, bound):
        config.workerinput = {"workerid": "gw1"}
    assert pinning.of(free) == {"CUDA_VISIBLE_DEVICES": B}
    assert pinning.of(bound) == {}
    assert pinning.header(free) == []


# ---- what nvidia-smi says


def test_the_listing_is_read() -> None:
    """GPUs in order, each with its MIG devices."""
    assert visible_gpus.parse_listing(LISTED) == ((A, (PART, OTHER_PART)), (B, ()))
    assert visible_gpus.parse_listing("") == ()
    assert visible_gpus.parse_listing("No devices were found\n") == ()
    assert visible_gpus.parse_listing(f"  MIG 1g.5gb Device 0: (UUID: {PART})\n") == ()


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    """Whatever nvidia-smi prints, there is a list."""
    assert isinstance(visible_gpus.parse_listing(text), tuple)


def nvidia_smi(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_nvidia_smi_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its list is taken; where it is not installed, or finds no driver, there are no GPUs."""
    with caplog.at_level(logging.WARNING):
        monkeypatch.setenv("PATH", str(tmp_path))
        assert visible_gpus.list_gpus() == ()
        monkeypatch.undo()
        nvidia_smi(tmp_path / "fails", "echo NVIDIA-SMI has failed; exit 9", monkeypatch)
        assert visible_gpus.list_gpus() == ()
    nvidia_smi(tmp_path / "works", f'[ "$*" = -L ] && echo "GPU 0: NVIDIA H200 (UUID: {A})"', monkeypatch)
    assert visible_gpus.list_gpus() == ((A, ()),)
    assert not caplog.records


def test_a_list_that_does_not_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A machine that may have GPUs, but does not tell, is run without pinning, and a warning says so."""
    monkeypatch.setattr(visible_gpus, "_LIST_TIMEOUT_S", 0.2)
    nvidia_smi(tmp_path / "hangs", "exec sleep 60", monkeypatch)
    with caplog.at_level(logging.WARNING):
        assert visible_gpus.list_gpus() == ()
    assert "so workers are not pinned to them: " in caplog.text
    assert "timed out" in caplog.text
