"""`--cgins-sandbox` in whole runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from pytest_cgins.run.sandbox.outside import has_gpu
from pytest_cgins.run.sandbox.sandbox import Sandbox

if TYPE_CHECKING:
    from conftest import Run

NEEDS_SANDBOX = pytest.mark.skipif(bool(Sandbox().available()), reason="this host gives no sandbox")
FAST = ("--cgins", "--cgins-probes=off", "--cgins-json=report.json", "-k", "4x8")
KERNELS = """\
import resource
from pathlib import Path

def reads_gold(input):
    print("gold:", [path.name for path in (Path(__file__).parent / "traces/tiny").iterdir()])
    print("allocations are limited:", resource.getrlimit(resource.RLIMIT_DATA)[0] != resource.RLIM_INFINITY)
    return input.clamp_min(0)

def writes(input):
    Path(__file__).write_text("")
    return input.clamp_min(0)
"""


def configure(project: Path) -> None:
    """Write kernels, and a cgins.yaml that has them."""
    (project / "curious.py").write_text(KERNELS)
    implementations = [
        {"name": name, "device": "cpu", "target": f"curious:{name}"} for name in ("reads_gold", "writes")
    ]
    kernels = {"relu": {"op": "torch.nn.functional.relu", "implementations": implementations}}
    document = {"version": 1, "traces": ["traces/tiny"], "kernels": kernels}
    (project / "cgins.yaml").write_text(yaml.safe_dump(document, sort_keys=False))


@NEEDS_SANDBOX
def test_kernels_run_in_the_sandbox(project: Path, run: Callable[..., Run]) -> None:
    """Right kernels pass and are timed; what others look for is not there, or not to be written."""
    configure(project)
    found = run(project, *FAST, "--cgins-sandbox=on")
    verdicts = {name.partition(" ")[0]: one for name, one in found.evaluations().items()}
    assert verdicts["relu/reads_gold"]["verdict"]["status"] == "PASSED", found.out
    assert verdicts["relu/reads_gold"]["measurement"] is not None
    assert "gold: []" in verdicts["relu/reads_gold"]["output"], found.out
    assert f"allocations are limited: {not has_gpu()}" in verdicts["relu/reads_gold"]["output"]
    assert verdicts["relu/writes"]["verdict"]["status"] == "RUNTIME_ERROR"
    assert "Read-only file system" in found.out
    assert "--cgins-sandbox=on" in found.out.partition("again")[2]


STEALS = """\
// cgins: relu(Tensor input, bool inplace=False) -> Tensor
#include <cgins.h>
#include "SECRET"
extern "C" int relu(const DLTensor*, bool, DLTensor*, cgins_stream) { return 0; }
"""


@pytest.mark.exam
@NEEDS_SANDBOX
def test_compilers_run_in_the_sandbox(project: Path, run: Callable[..., Run], tmp_path: Path) -> None:
    """A source does not get at a home folder's files by its compiler, and builds as it should otherwise."""
    secret = tmp_path / "home/.netrc"
    secret.parent.mkdir()
    secret.write_text("hush_4711 is no type;\n")
    (project / "steals.cpp").write_text(STEALS.replace("SECRET", str(secret)))
    (project / "traces/tiny/seen.h").write_text("hush_4712 is no type;\n")
    (project / "looks.cpp").write_text(STEALS.replace("SECRET", "traces/tiny/seen.h"))
    names = {"right": "kernels/relu.cpp", "steals": "steals.cpp", "looks": "looks.cpp"}
    implementations = [{"name": name, "device": "cpu", "source": source} for name, source in names.items()]
    kernels = {"relu": {"op": "torch.nn.functional.relu", "implementations": implementations}}
    document = {"version": 1, "traces": ["traces/tiny"], "kernels": kernels}
    (project / "cgins.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    env = {"HOME": str(secret.parent), "CGINS_CACHE_DIR": str(tmp_path / "cache")}
    found = run(project, *FAST, "--cgins-no-timing", "--cgins-sandbox=on", env=env)
    statuses = {name.partition(" ")[0]: status for name, status in found.statuses().items()}
    assert statuses == {
        "relu/right": "PASSED", "relu/steals": "BUILD_ERROR", "relu/looks": "BUILD_ERROR"
    }, found.out  # fmt: skip
    assert found.out.count("No such file or directory") >= 2
    everything = found.out + (project / "report.json").read_text()
    assert "hush_471" not in everything
    outside = run(project, *FAST, "--cgins-no-timing", env=env)
    assert "hush_4711" in outside.out
    assert "hush_4712" in outside.out
    assert "from the cache" not in outside.out  # what was built inside is none of a build outside


def test_what_runs_outside_of_it_is_refused(project: Path, run: Callable[..., Run]) -> None:
    """Options that have kernels run elsewhere are errors beside it, before anything runs."""
    found = run(project, "--cgins", "--cgins-sandbox=on", "--cgins-isolation=none")
    assert found.code == 4
    assert "pytest's own process cannot be fenced in" in found.out


@pytest.mark.exam
@NEEDS_SANDBOX
def test_host_without_sandbox(project: Path) -> None:
    """Where namespaces are forbidden, as they are in a sandbox, the run refuses and says what would help."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--cgins", "--cgins-sandbox=on"]
    found = subprocess.run(
        Sandbox(visible=(project,)).wrap(command), cwd=project, capture_output=True, text=True, check=False
    )
    assert found.returncode == 4, found.stdout
    assert "kernels cannot be fenced in on this host" in found.stderr
    assert "namespaces: the sandbox could not be set up: unshare: Operation not permitted" in found.stderr
    assert "max_user_namespaces" in found.stderr or "--security-opt" in found.stderr
    assert "--cgins-sandbox=off" in found.stderr
