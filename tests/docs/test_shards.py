"""The recipes of example_project/ci: parts of a suite on Buildkite, Slurm, Modal and Ray, and one verdict."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.regenerate.ray_nodes import RayNodes

EXAMPLE = Path(__file__).parents[2] / "example_project"
CHOSEN = ("--cgins-no-timing", "--cgins-probes=off", "-k", "silu_mul and cpp and f32")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example without what a GPU recorded."""
    left_out = shutil.ignore_patterns("production", ".cgins", "__pycache__")
    return Path(shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("shards") / "project", ignore=left_out))


def bash(project: Path, command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A job's command, as its runner starts it."""
    bin_folder = Path(sys.executable).parent
    environment = os.environ | variables | {"PATH": f"{bin_folder}:{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-euc", command], cwd=project, env=environment, capture_output=True, text=True, check=False
    )


def test_parts_of_slurm_and_buildkite_make_one_suite(project: Path) -> None:
    """The first part is a task of an array that begins with 3, the second a parallel job; the merge wants both."""
    jobs, verdict = yaml.safe_load((project / "ci/buildkite.yml").read_text())["steps"]
    fetch, merge = verdict["commands"]
    assert fetch.startswith("buildkite-agent artifact download")
    array = {"ID": "3", "MIN": "3", "COUNT": "2"}
    arguments = " ".join(f"'{word}'" for word in CHOSEN)
    slurm = bash(
        project, f"ci/slurm.sh {arguments}", **{f"SLURM_ARRAY_TASK_{name}": value for name, value in array.items()}
    )  # fmt: skip
    assert slurm.returncode == 0, slurm.stdout + slurm.stderr
    half = bash(project, merge)
    assert half.returncode == 2
    assert "shard 2 of 2 is missing" in half.stderr
    # Buildkite itself replaces variables when a pipeline is uploaded, and takes one `$` of two away.
    command = jobs["command"].replace("$$", "$")
    built = bash(
        project, f"{command} {arguments}", BUILDKITE_PARALLEL_JOB="1", BUILDKITE_PARALLEL_JOB_COUNT="2"
    )
    assert built.returncode == 0, built.stdout + built.stderr
    whole = bash(project, merge)
    assert whole.returncode == 0, whole.stdout + whole.stderr
    counts = [
        len(json.loads((project / name).read_text())["evaluations"])
        for name in ("reports/1.json", "reports/2.json", "report.json")
    ]
    assert min(counts) > 0
    assert counts[0] + counts[1] == counts[2]


@pytest.mark.exam
def test_parts_on_a_cluster_make_one_suite(project: Path, tmp_path: Path) -> None:
    """Ray's recipe as it stands, but for its GPUs."""
    script = (project / "ci/ray_app.py").read_text()
    (tmp_path / "ray_app.py").write_text(
        script.replace("num_gpus=1", "num_cpus=1").replace("PARTS = 4", "PARTS = 2")
    )
    with RayNodes(PYTEST_ADDOPTS=" ".join(repr(word) for word in CHOSEN)) as nodes:
        ran = bash(project, f"python {tmp_path}/ray_app.py", RAY_ADDRESS=nodes.executor.partition("=")[2])
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert len(json.loads((project / "report.json").read_text())["evaluations"]) > 1
