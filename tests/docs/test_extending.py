"""extending.md: its diffs apply to the files that there are, and what it names is there."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tables import document
from walk import blocks, patched

from pytest_cgins import plugin

PACKAGE = Path(plugin.__file__).parent
TEXT = document("extending.md")
NEW = {
    "verify/probes/working_directory.py",
    "report/lines.py",
    "recording/importers/opcalls.py",
    "timing/devices/simulator.py",
}
"""Files that a reader writes."""
PROJECT = Path(__file__).parents[1] / "plugin" / "project"
FILES = {
    "pytest.ini": "[pytest]\n",
    "wide_ops.py": """
import pytest_cgins

@pytest_cgins.mark
def widened(x):
    return x.float()
""",
    "record.py": """
import pytest_cgins, torch, wide_ops

with pytest_cgins.record("traces/all", ops=["torch.nn.functional.relu", "wide_ops.widened"]):
    torch.nn.functional.relu(torch.randn(4, 8))
    wide_ops.widened(torch.randn(4, 8).to(torch.float8_e4m3fnuz))
""",
    "kernels/widened.cpp": """
// cgins: widened(Tensor x) -> Tensor
#include <cgins.h>
#include <cmath>
extern "C" int widened(const DLTensor* x, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::dtype_of(x) == cgins::Dtype::float8_e4m3fnuz, "float8_e4m3fnuz only");
  CGINS_CHECK(cgins::is_contiguous(x), "contiguous tensors only");
  const uint8_t* bits = cgins::data<uint8_t>(x);
  for (int64_t i = 0; i < cgins::numel(x); ++i) {
    const int exponent = bits[i] >> 3 & 15, mantissa = bits[i] & 7;
    float y = exponent ? std::ldexp(8.0f + mantissa, exponent - 11) : std::ldexp(float(mantissa), -10);
    if (bits[i] == 128) y = NAN;
#ifdef WRONG
    y += 1;
#endif
    cgins::data<float>(out)[i] = bits[i] & 128 ? -y : y;
  }
  return 0;
}
""",
    "cgins.yaml": """
version: 1
traces: [traces/all]
kernels:
  relu:
    op: torch.nn.functional.relu
    implementations:
      - {name: right, device: simulator, source: kernels/relu.cpp}
      - {name: wrong, device: simulator, source: kernels/relu.cpp, defines: {WRONG: 1}}
  widened:
    op: wide_ops.widened
    implementations:
      - {name: right, source: kernels/widened.cpp}
      - {name: wrong, source: kernels/widened.cpp, defines: {WRONG: 1}}
""",
}
"""A project that needs the new device and the new dtype, beside the kernels of `PROJECT`."""


def changed() -> dict[str, str]:
    """The files that a reader who does all of it writes or changes, each hunk's lines being in its file once."""
    files: dict[str, str] = {}
    for block in blocks(TEXT):
        if block.language == "diff":
            source = files.get(block.file) or (PACKAGE / block.file).read_text(encoding="utf-8")
            for hunk in block.text.split("@@\n"):
                source = patched(source, hunk)
            files[block.file] = source
        elif block.language == "python":
            assert block.file in NEW
            files[block.file] = block.text
    return files


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as it is afterwards."""
    folder = tmp_path_factory.mktemp("extended")
    shutil.copytree(PACKAGE, folder / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    for name, source in changed().items():
        (folder / PACKAGE.name / name).write_text(source, encoding="utf-8")
    return folder


def test_diffs_apply() -> None:
    """What comes of a Python file can be parsed."""
    files = changed()
    assert len(files) > 10
    for name, source in files.items():
        if name.endswith(".py"):
            ast.parse(source)


@pytest.fixture(scope="module")
def statuses(extended: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Verdicts of a project that needs the new device and the new dtype, by kernel, device and implementation."""
    project = Path(shutil.copytree(PROJECT, tmp_path_factory.mktemp("project") / "project"))
    for name, text in FILES.items():
        (project / name).write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(extended), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    options = ["--cgins", "--cgins-device=auto", "--cgins-json=report.json"]
    for words in (["record.py"], ["-m", "pytest", "-p", "pytest_cgins.plugin", *options]):
        done = subprocess.run(
            [sys.executable, *words], cwd=project, env=environment, capture_output=True, text=True, timeout=300,
            check=words == ["record.py"],
        )  # fmt: skip
    report = json.loads((project / "report.json").read_text())
    assert {one["device_name"] for one in report["environments"]} >= {"simulator"}, done.stdout
    return {
        "{kernel}/{device}-{implementation}".format_map(one["case"]): one["verdict"]["status"]
        for one in report["evaluations"]
    }


@pytest.mark.exam
@pytest.mark.parametrize("kernel", ["relu/simulator", "widened/cpu"])
def test_kernels_are_gated(statuses: dict[str, str], kernel: str) -> None:
    """On the new device, and on inputs of the new dtype: a right kernel passes, a wrong one fails."""
    assert statuses[f"{kernel}-right"] == "PASSED"
    assert statuses[f"{kernel}-wrong"] == "INCORRECT"


@pytest.mark.exam
def test_the_importer_imports(extended: Path, tmp_path: Path) -> None:
    """A call becomes a trace, and a line that is none is left out."""
    (tmp_path / "calls.jsonl").write_text('{"op": "torch.relu", "shapes": [[8, 64]]}\n[]\n')
    main = "from pytest_cgins.app.cli import main; raise SystemExit(main())"
    command = [sys.executable, "-c", main, "import", "opcalls", "calls.jsonl", "--out", "pack"]
    environment = {**os.environ, "PYTHONPATH": str(extended)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    assert "left out  calls.jsonl:2" in done.stdout
    assert "1 trace, " in done.stdout


def test_files_exist() -> None:
    """Each file that is named is there, but for those that are written here."""
    for name in set(re.findall(r"`((?:[\w.]+/)+[\w.]*)`", TEXT)) - NEW - {"pytest_cgins/"}:
        assert any((folder / name).exists() for folder in (PACKAGE, PACKAGE.parent)), name
