"""The example project is whole: packs, scripts, kernels and its tour belong together."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pytest_cgins import config
from pytest_cgins.packs.store import open_pack

PROJECT = Path(__file__).parents[1] / "example_project"
PACKS = sorted(folder.name for folder in (PROJECT / "traces").iterdir())
MOST_BYTES = 3 * 2**20


@pytest.mark.parametrize("pack", PACKS)
def test_every_pack_is_gated_has_its_script_and_is_in_the_tour(pack: str) -> None:
    """A pack that nobody can record again, or that no run reads, is dead weight."""
    loaded = config.load(PROJECT / "cgins.yaml")
    assert PROJECT / "traces" / pack in [Path(traces) for traces in loaded.traces]
    sources = (PROJECT / "record" / f"{pack}.py", PROJECT / "benchmarks" / f"{pack}.json")
    assert any(source.exists() for source in sources)
    assert f"`{pack}`" in (PROJECT / "README.md").read_text()


def test_every_recorded_op_has_a_kernel_and_every_kernel_a_case() -> None:
    """Neither is a trace without a kernel, nor a kernel that nothing gates."""
    loaded = config.load(PROJECT / "cgins.yaml")
    recorded = {trace.call.op for pack in PACKS for trace in open_pack(PROJECT / "traces" / pack).pack.traces}
    assert recorded == {kernel.op for kernel in loaded.kernels}


@pytest.mark.exam
def test_the_first_failure_of_the_readme_is_explained(tmp_path: Path) -> None:
    """A newcomer breaks a kernel by one command, and within seconds reads which mistake was made."""
    text = (PROJECT.parent / "README.md").read_text()
    edit, gate = re.findall(
        r"^\$ ((?:sed -i|python -m pytest --cgins example_project -k) .*?)(?:  +#.*)?$", text, re.MULTILINE
    )
    shutil.copytree(PROJECT, tmp_path / "example_project")
    subprocess.run(shlex.split(edit), cwd=tmp_path, check=True)
    _, *command = shlex.split(gate)
    run = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 1, run.stdout
    assert "It is the right answer to the same call with `eps` 0." in run.stdout
    assert "1 failed" in run.stdout


def test_packs_stay_small_enough_to_commit() -> None:
    """All together take less than 3 MiB."""
    files = [file for file in (PROJECT / "traces").rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < MOST_BYTES


def test_names_in_the_tour_exist() -> None:
    """Files and kernels that the README points to are there."""
    text = (PROJECT / "README.md").read_text()
    words = {word.strip("`(),.;:") for word in text.split() if word.startswith("`")}
    files = {
        word for word in words if word.endswith((".cu", ".cpp", ".py", ".h", ".cuh")) and "<" not in word
    }
    missing = {
        name
        for name in files
        if not any((folder / name).exists() for folder in (PROJECT, PROJECT / "kernels"))
        and not name.startswith(".")
    }
    assert missing == set()


@pytest.mark.exam
def test_production_models_run_scaled_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """At their own sizes they need a GPU; a sixteenth shows that they are made, and that a run repeats."""
    monkeypatch.syspath_prepend(PROJECT)
    from production import workloads  # with transformers, which takes seconds of each collection

    for name in workloads.ALL:
        made = getattr(workloads, name)("cpu", 16)
        if not isinstance(made, tuple):
            assert made().isfinite(), name  # A step of training, which changes the weights.
            continue
        model, inputs = made
        with torch.no_grad():
            outputs = [model(*inputs) if isinstance(inputs, tuple) else model(inputs) for _ in range(2)]
        first, second = (one if isinstance(one, torch.Tensor) else one[0] for one in outputs)
        assert first.isfinite().all(), name
        assert torch.equal(first, second), name
