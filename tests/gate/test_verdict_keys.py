"""Keys of verdicts: whatever could change a verdict changes its key."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import pytest_cgins
from pytest_cgins.building import build
from pytest_cgins.building.contracts import source
from pytest_cgins.config import load
from pytest_cgins.core import session_report
from pytest_cgins.core.session_report import Environment
from pytest_cgins.gate import input_digests, verdict_keys
from pytest_cgins.gate.cases import cases_of
from pytest_cgins.gate.reference_requests import ReferenceRequests
from pytest_cgins.gate.verdict_keys import VerdictKeys

CPU = Environment(
    device="cpu", device_name="a CPU", python="3.11.4", torch="2.13", driver="580.1", triton="3.4"
)
LAUNCHER = """\
// cgins: relu(Tensor input, bool inplace=False) -> Tensor
#include <cgins.h>
#include "half.h"
extern "C" int relu(const DLTensor* input, bool, DLTensor* out, cgins_stream) {
  for (int64_t i = 0; i < cgins::numel(input); ++i) {
    const float x = cgins::data<float>(input)[i];
    cgins::data<float>(out)[i] = x > ZERO ? x : ZERO;
  }
  return 0;
}
"""
OPS = """\
import pytest_cgins
import factors

@pytest_cgins.mark
def scaled(x):
    return x * factors.FACTOR
"""
CONFIG = """\
version: 1
traces: [traces]
kernels:
  relu: {op: torch.nn.functional.relu, source: relu.cpp}
  scaled: {op: own_ops.scaled, device: cpu, target: 'kernel:scaled', sources: [kernel.py]}
"""


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a launcher, and a kernel in Python for an op of the project's own."""
    folder = tmp_path_factory.mktemp("keys")
    files = {
        "relu.cpp": LAUNCHER,
        "half.h": "#define ZERO 0.0f\n",
        "own_ops.py": OPS,
        "factors.py": "FACTOR = 2.0\n",
        "kernel.py": "from helper import double\n\ndef scaled(x):\n    return double(x)\n",
        "helper.py": "def double(x):\n    return x + x\n",
        "cgins.yaml": CONFIG,
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    sys.path.insert(0, str(folder))
    try:
        import own_ops

        ops = ["torch.nn.functional.relu", "own_ops.scaled"]
        with pytest_cgins.record(folder / "traces", ops=ops, tier="full"):
            torch.nn.functional.relu(torch.randn(2, 3))
            own_ops.scaled(torch.randn(2, 3))
    finally:
        sys.path.remove(str(folder))
        for name in ("own_ops", "factors"):
            sys.modules.pop(name)
    return folder


@pytest.fixture(autouse=True)
def _installation() -> Iterator[None]:
    """What is installed is looked at once a process; here it changes."""
    yield
    verdict_keys._installation.cache_clear()


@pytest.fixture
def project(pack: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pack, tmp_path / "project"))


def noted(
    folder: Path,
    name: str,
    *,
    environment: Environment = CPU,
    run: str = "",
    level: str = "full",
    timing: bool = True,
    seed: int = 7,
) -> session_report.Tested:
    """What a run notes of a case of a kernel, found anew from the files."""
    config = load(folder / "cgins.yaml")
    entry = next(entry for entry in config.kernels if entry.name == name)
    compiled = build.build(source.find(config, entry, entry.implementations[0]))
    cases = cases_of(config)
    case = next(case for case in cases if case.kernel == name)
    requests = ReferenceRequests(
        config=config,
        seed=seed,
        level=level,
        sanitize=(),
        import_root=folder,
        timing=timing,
        cases=lambda: cases,
    )
    keys = VerdictKeys(config, requests, lambda _: environment, run, known=None)
    return keys.added(input_digests.tested(config, case, compiled, seed=seed), case, compiled)


def edit(file: Path, old: str, new: str) -> None:
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def add_trace(folder: Path) -> None:
    """Record again, with a smaller call that makes the large ones instead."""
    edit(folder / "cgins.yaml", "[traces]", "[traces, more]")
    with pytest_cgins.record(folder / "more", ops=["torch.nn.functional.relu"]):
        torch.nn.functional.relu(torch.ones(1))


def corrupt_blob(folder: Path) -> None:
    for blob in (folder / "traces" / "blobs").iterdir():
        data = bytearray(blob.read_bytes())
        data[-1] ^= 1
        blob.write_bytes(data)


def change_count(folder: Path) -> None:
    """In the trace's entry, but no part of its id."""
    file = folder / "traces" / "manifest.json"
    manifest = json.loads(file.read_text())
    for trace in manifest["traces"]:
        trace["replay"] = "derived"
    file.write_text(json.dumps(manifest))


FILES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "source": ("relu", lambda folder: edit(folder / "relu.cpp", "x > ZERO", "x >= ZERO")),
    "header": ("relu", lambda folder: edit(folder / "half.h", "0.0f", "0.f")),
    "flags": ("relu", lambda folder: edit(folder / "cgins.yaml", "relu.cpp}", "relu.cpp, defines: {A: 1}}")),
    "tolerance": (
        "relu", lambda folder: edit(folder / "cgins.yaml", "relu.cpp}", "relu.cpp, tolerance: {atol: 1}}")
    ),
    "excused probe": (
        "relu",
        lambda folder: edit(folder / "cgins.yaml", "relu.cpp}", "relu.cpp, probes: {repeat: {off: sums differ by design}}}"),
    ),
    "gate": ("relu", lambda folder: edit(folder / "cgins.yaml", "kernels:", "gate: {tolerate: 4%}\nkernels:")),
    "another trace": ("relu", add_trace),
    "blob": ("relu", corrupt_blob),
    "trace's entry": ("relu", change_count),
    "imported module": ("scaled", lambda folder: edit(folder / "helper.py", "x + x", "2 * x")),
    "module of the op": ("scaled", lambda folder: edit(folder / "factors.py", "2.0", "2")),
    "shadowing module": ("scaled", lambda folder: edit(folder / "kernel.py", "\n\n", "\nimport factors\n\n")),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_changed_file_changes_the_key(project: Path, name: str) -> None:
    """Sources, what they include or import, settings, and what the trace holds."""
    kernel, change = FILES[name]
    before = noted(project, kernel)
    assert before.key
    assert before.environment == "a CPU · torch 2.13 · triton 3.4 · python 3.11"
    assert noted(project, kernel) == before
    change(project)
    after = noted(project, kernel)
    assert after.key
    assert after.key != before.key


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("device_name", "another CPU"),
        ("torch", "2.14"),
        ("triton", "3.5"),
        ("driver", "581.1"),
        ("cudnn", "9.1"),
        ("cublas", "13.1"),
        ("cuda", "13.1"),
        ("python", "3.11.5"),
        ("host_cores", 64),
    ],
)
def test_another_device_or_version_changes_the_key(project: Path, field: str, value: object) -> None:
    """Each thing that the reference worker tells of its environment."""
    changed = noted(project, "scaled", environment=replace(CPU, **{field: value}))
    assert changed.key != noted(project, "scaled").key


def test_an_equal_device_beside_it_changes_nothing(project: Path) -> None:
    """Which GPU of several it was, how fast it ran, and with which seed of its own."""
    other = replace(CPU, device_uuid="GPU-2", clock_policy="default")
    assert noted(project, "scaled", environment=other, seed=8).key == noted(project, "scaled").key


@pytest.mark.parametrize(
    "options",
    [{"level": "fast"}, {"timing": False}, {"run": "seed 7"}],
    ids=["probes", "timing", "seed"],
)
def test_other_options_change_the_key(project: Path, options: dict[str, object]) -> None:
    """What is asked of a case, and the seed that a run was given."""
    assert noted(project, "scaled", **options).key != noted(project, "scaled").key  # type: ignore[arg-type]


def test_another_compiler_changes_the_key(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script around it, too."""
    before = noted(project, "relu").key
    compiler = tmp_path / "other-g++"
    compiler.write_text('#!/bin/sh\nexec g++ "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    assert noted(project, "relu").key != before


@pytest.mark.parametrize(
    ("variable", "changes"),
    [("OMP_NUM_THREADS", True), ("TRITON_INTERPRET", True), ("MY_TILE", True), ("GITHUB_RUN_ID", False)],
)
def test_variables_that_are_read_change_the_key(
    project: Path, monkeypatch: pytest.MonkeyPatch, variable: str, changes: bool
) -> None:
    """Those of libraries, and those whose names are in the sources."""
    edit(project / "helper.py", "def", "import os\nTILE = os.environ.get('MY_TILE')\ndef")
    monkeypatch.delenv(variable, raising=False)
    before = noted(project, "scaled").key
    monkeypatch.setenv(variable, "3")
    assert (noted(project, "scaled").key != before) is changes


@pytest.mark.exam
def test_another_package_changes_the_key(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installed, of another version, or of the same with other files."""
    keys = [noted(project, "scaled").key]
    info = tmp_path / "site" / "layers-1.0.dist-info"
    info.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(info.parent))
    for version, digest in (("1.0", "a"), ("1.1", "a"), ("1.1", "b")):
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: layers\nVersion: {version}\n")
        verdict_keys._installation.cache_clear()
        (info / "RECORD").write_text(f"../bin/x,sha256=1,1\nlayers.py,sha256={digest},1\n")
        keys.append(noted(project, "scaled").key)
    assert len(set(keys)) == 4


def test_our_own_sources_change_the_key(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edited checkout of pytest-cgins has the same version."""
    own = tmp_path / "own" / "__init__.py"
    own.parent.mkdir()
    own.write_text("")
    monkeypatch.setattr(pytest_cgins, "__file__", str(own))
    verdict_keys._installation.cache_clear()
    before = noted(project, "scaled").key
    own.write_text("# changed\n")
    verdict_keys._installation.cache_clear()
    assert noted(project, "scaled").key != before


@pytest.mark.parametrize(
    ("kernel", "name", "old", "new", "said"),
    [
        ("scaled", "helper.py", "def", "import importlib\ndef", "helper.py has importlib"),
        ("scaled", "factors.py", "2.0", "float(open('f').read())", "factors.py has open"),
        ("relu", "half.h", "#define", "#include <fstream>\nstd::ifstream f;\n#define", "half.h has "),
        ("scaled", "helper.py", "def", "def (", "SyntaxError: "),
    ],
)
def test_what_is_not_known_whole_has_no_key(
    project: Path, kernel: str, name: str, old: str, new: str, said: str
) -> None:
    """Files that are read as the code runs may change unseen; the reason is told."""
    edit(project / name, old, new)
    found = noted(project, kernel)
    assert found.key == ""
    assert found.unknown.startswith(said)
