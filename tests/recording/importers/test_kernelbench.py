from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.config import load
from pytest_cgins.core.errors import RecordError
from pytest_cgins.recording.importers.kernelbench import problem_name, shrunk

SCALE = '''"""A problem in the form of the benchmark."""
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features: int, factor: float):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.factor = factor

    def forward(self, x):
        return self.norm(x) * self.factor

batch_size = 64 * 2
features = 96
factor = 0.5

def get_inputs():
    return [torch.rand(batch_size, features)]

def get_init_inputs():
    return [features, factor]
'''


def test_a_problem_becomes_a_trace_of_its_model(
    cgins: Callable[..., Any], write: Callable[..., Path], tmp_path: Path
) -> None:
    """The op is the module class in the copy under references, with the model's parameters as state."""
    source = write("KernelBench/level1/7_Scaled_norm_.py", SCALE)
    run = cgins("import", "kernelbench", source, "--allow-code")
    assert run.code == 0, run.out + run.err
    assert run.ops() == ["references.kb_l1_007_scaled_norm.Model"]
    names = [argument.name for argument in run.pack.traces[0].call.arguments]
    assert names[0] == "x"
    assert {"self.norm.weight", "self.factor"} <= set(names)
    copy = (tmp_path / "references/kb_l1_007_scaled_norm.py").read_text()
    assert copy.endswith(SCALE)
    assert copy.startswith("# Imported with `cgins import` from 7_Scaled_norm_.py")


def test_code_is_not_run_without_permission(
    cgins: Callable[..., Any], write: Callable[..., Path], tmp_path: Path
) -> None:
    """Without --allow-code nothing runs and nothing is copied; the refusal says that it would run code."""
    source = write("1_Bad.py", "import os\nos.mkdir('made')\n" + SCALE)
    run = cgins("import", "kernelbench", source)
    assert run.code == 2
    assert "to import it is to run it with your rights" in run.err
    assert "--allow-code" in run.err
    assert not (tmp_path / "made").exists()
    assert not (tmp_path / "references").exists()


def test_overrides(cgins: Callable[..., Any], write: Callable[..., Path], tmp_path: Path) -> None:
    """--set replaces a constant in the copy, and what is computed from it follows."""
    source = write("1_Scale.py", SCALE)
    options = ("--allow-code", "--set", "batch_size=3", "--set", "features=8")
    run = cgins("import", "kernelbench", source, *options)
    assert run.pack.traces[0].tensors[0].shape == (3, 8)
    assert "batch_size = 3\n" in (tmp_path / "references/kb_001_scale.py").read_text()
    unknown = cgins("import", "kernelbench", source, "--allow-code", "--set", "batch=3")
    assert unknown.code == 1
    assert "1_Scale.py has no top-level constant batch" in unknown.out
    assert 'did you mean "batch_size"?' in unknown.out
    wrong = cgins("import", "kernelbench", source, "--allow-code", "--set", "batch_size=open('x')")
    assert "is not NAME=VALUE" in wrong.err


@pytest.mark.exam
def test_big_problems_are_refused_before_memory_is_taken(
    cgins: Callable[..., Any], write: Callable[..., Path]
) -> None:
    """A problem of terabytes is left out with its size, and --shrink makes it fit and says how."""
    source = write("1_Scale.py", SCALE.replace("batch_size = 64 * 2", "batch_size = 2**32"))
    run = cgins("import", "kernelbench", source, "--allow-code", "--max-mib", 16)
    assert run.code == 1
    assert "its tensors have 3145728 MiB, more than the 16 MiB of --max-mib" in run.out
    run = cgins("import", "kernelbench", source, "--allow-code", "--max-mib", 0.01, "--shrink")
    assert run.code == 0
    assert "note      1_Scale: sizes reduced to fit 0.01 MiB: batch_size=8" in run.out


def test_shrink_keeps_equal_sizes_equal() -> None:
    """Sizes that only fit together are halved together; a problem that cannot fit says its least size."""
    code = (
        "import torch\nbatch = 4096\nwide = (4096,)\n"
        "class Model(torch.nn.Module):\n    def forward(self, x, y):\n        return x * y\n"
        "def get_inputs():\n    return [torch.rand(batch, *wide), torch.rand(batch)]\n"
        "def get_init_inputs():\n    return []\n"
    )
    assert shrunk(code, 1) == {"batch": 256, "wide": (256,)}
    with pytest.raises(RecordError, match="MiB at the least sizes that --shrink finds"):
        shrunk(code.replace("batch)]", "batch), torch.rand(10**7)]").replace("x, y)", "x, y, z)"), 1)


def test_a_model_that_asks_tensors_for_numbers_is_made_to_know_its_size() -> None:
    """Without numbers its size cannot be told beforehand: it is recorded as it is."""
    code = SCALE.replace("self.factor = factor", "self.factor = torch.linspace(0, factor, 3)[-1].item()")
    assert shrunk(code, 1) == {}


def test_a_folder_with_a_broken_problem(cgins: Callable[..., Any], write: Callable[..., Path]) -> None:
    """Problems are taken in the order of their numbers; one that raises leaves the others alone."""
    for number, code in ((10, SCALE), (9, "raise RuntimeError('no')"), (8, SCALE.replace("Model", "Modell"))):
        write(f"level2/{number}_P.py", code)
    write("level2/notes.py", "raise SystemExit")
    run = cgins("import", "kernelbench", "level2", "--allow-code")
    assert run.ops() == ["references.kb_l2_010_p.Model"]
    assert "left out  9_P: RuntimeError: no" in run.out
    assert "left out  8_P: it defines no Model" in run.out


def test_a_file_of_the_project_is_not_overwritten(
    cgins: Callable[..., Any], write: Callable[..., Path], tmp_path: Path
) -> None:
    """A module that `cgins import` did not write stays, and another import's is written anew."""
    source = write("1_Scale.py", SCALE)
    write("references/kb_001_scale.py", "mine = 1\n")
    run = cgins("import", "kernelbench", source, "--allow-code")
    assert "already exists, and `cgins import` did not write it" in run.out
    assert (tmp_path / "references/kb_001_scale.py").read_text() == "mine = 1\n"
    for batch in (2, 3):
        options = ("--allow-code", "--references", "other", "--set", f"batch_size={batch}")
        run = cgins("import", "kernelbench", source, *options)
        assert run.pack.traces[0].tensors[0].shape == (batch, 96)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("level1/100_HingeLoss.py", "kb_l1_100_hingeloss"),
        ("level1/72_conv___strided_padded_grouped_.py", "kb_l1_072_conv_strided_padded_grouped"),
        ("KernelBench/level_2/3_A-b.c.py", "kb_l2_003_a_b_c"),
        ("problem.py", "kb_problem"),
    ],
)
def test_problem_names(path: str, name: str) -> None:
    """A problem's module is named by level and number, in characters that can be imported."""
    assert problem_name(Path(path)) == name


@pytest.mark.exam
def test_the_reference_passes_as_its_own_kernel(
    cgins: Callable[..., Any], write: Callable[..., Path], tmp_path: Path
) -> None:
    """The written cgins.yaml gates the imported reference, and the gate is content with it."""
    source = write("1_Scale.py", SCALE)
    options = ("--allow-code", "--set", "batch_size=4", "--config", "cgins.yaml")
    assert cgins("import", "kernelbench", source, *options).code == 0
    config = load(tmp_path / "cgins.yaml")
    assert config.kernels[0].implementations[0].target == "references.kb_001_scale:Model.forward"
    command = [sys.executable, "-m", "pytest", "--cgins", "--cgins-no-timing", "--cgins-json", "report.json"]
    options = ("-q", "--rootdir", ".", "-p", "no:cacheprovider", "-p", "no:randomly")
    done = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (evaluation,) = json.loads((tmp_path / "report.json").read_text())["evaluations"]
    assert evaluation["verdict"]["status"] == "PASSED"


@pytest.mark.parametrize("place", ["import sys", "def get_inputs():"])
def test_code_that_exits(cgins: Callable[..., Any], write: Callable[..., Path], place: str) -> None:
    """A problem that calls sys.exit(0) does not make the import end as if all were well."""
    ends = "import sys; sys.exit(0)"
    code = f"{ends}\n{SCALE}" if place == "import sys" else SCALE.replace(place, f"{place}\n    {ends}")
    run = cgins("import", "kernelbench", write("1_exits.py", code), "--allow-code")
    assert run.code != 0
    assert "with status 0" in run.out + run.err


def test_two_problems_with_one_name(cgins: Callable[..., Any], write: Callable[..., Path]) -> None:
    """The second of two files that would be copied to one module is left out, not put in the first's place."""
    write("all/a/1_scale.py", SCALE)
    write("all/b/1_scale.py", SCALE.replace("factor = 0.5", "factor = 4.0"))
    run = cgins("import", "kernelbench", "all", "--allow-code")
    assert len(run.pack.traces) == 1
    assert "would take the place of other code" in run.out


def test_references_that_a_config_does_not_find(
    cgins: Callable[..., Any], write: Callable[..., Path], tmp_path: Path
) -> None:
    """A cgins.yaml in another folder than the references' parent: what to put on PYTHONPATH is told."""
    options = ("--allow-code", "--config", "sub/cgins.yaml")
    run = cgins("import", "kernelbench", write("1_scale.py", f"\ufeff{SCALE}"), *options)
    assert f"put {tmp_path} on PYTHONPATH" in run.out
    run = cgins("import", "kernelbench", "1_scale.py", *options, "--references", "sub/references")
    assert "PYTHONPATH" not in run.out
