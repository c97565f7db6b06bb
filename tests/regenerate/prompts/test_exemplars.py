"""Exemplars: each passes the gate, and a prompt for a new kernel has one of another op in its contract and language."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_cgins.core import documents
from pytest_cgins.regenerate import targets
from pytest_cgins.regenerate.prompts import assembly, exemplars, workload
from tests.regenerate.prompts.example import PROJECT, config, context_of

SHIPPED = tuple(exemplars.shipped())
RECORD = """
import sys
import torch
import pytest_cgins
from torch.nn import functional

device = sys.argv[1]
with pytest_cgins.record("traces", ops=sorted(sys.argv[2:])):
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(3, 5, 37, device=device).to(dtype)
        functional.log_softmax(x, dim=-1)
        functional.log_softmax(x, dim=1)
        functional.relu(x)
        torch.bmm(x, torch.randn(3, 37, 70, device=device).to(dtype))
"""


def gated(folder: Path, device: str, chosen: list[exemplars.Exemplar]) -> str:
    """What a session of the gate without timing says of exemplars, on calls that are recorded for it."""
    (folder / "record.py").write_text(RECORD)
    lines = ["version: 1", "traces: [traces]", "kernels:"]
    for op in sorted({one.op for one in chosen}):
        lines += [f"  {workload.word(op)}:", f"    op: {op}", "    implementations:"]
        for one in (one for one in chosen if one.op == op):
            (folder / one.name).write_text(one.text)
            how = f"contract: {one.contract}, source: {one.name}"
            if one.contract == "python":
                module = one.name.removesuffix(".py")
                interpreted = "interpret: true, " if device == "cpu" else ""
                how = f"{interpreted}target: '{module}:{module}', sources: [{one.name}]"
            lines.append(f"      - {{name: {one.language}-{one.contract}, device: {device}, {how}}}")
    (folder / "cgins.yaml").write_text("\n".join(lines) + "\n")
    recorded = [sys.executable, "record.py", device, *{one.op for one in chosen}]
    subprocess.run(recorded, cwd=folder, check=True, capture_output=True)
    command = [sys.executable, "-m", "pytest", "--cgins", "--cgins-no-timing", "--cgins-timeout=600", "-q"]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True).stdout


@pytest.mark.exam
def test_what_a_cpu_can_run_passes_the_gate(tmp_path: Path) -> None:
    """With all probes; Triton's in its interpreter, which takes no bfloat16. The extension is the example's, gated with it."""
    chosen = [
        one for one in SHIPPED if one.language in ("cpp", "triton") and one.contract != "torch-extension"
    ]
    told = gated(tmp_path, "cpu", chosen)
    assert "8 passed, 2 skipped" in told, told
    (extension,) = (one for one in SHIPPED if one.contract == "torch-extension")
    assert (PROJECT / "kernels" / extension.name).read_text().endswith(extension.text)


@pytest.mark.gpu
def test_what_needs_a_gpu_passes_the_gate(tmp_path: Path) -> None:
    """The same on the GPU, compiled by nvcc, NVRTC and Triton."""
    chosen = [one for one in SHIPPED if one.language in ("cuda", "device", "triton")]
    told = gated(tmp_path, "cuda", chosen)
    assert "12 passed" in told, told
    assert "failed" not in told


@pytest.mark.parametrize(
    ("kernel", "implementation", "name"),
    [
        ("softmax", "cpp", "log_softmax.cpp"),
        ("linear", "cpp", "bmm.cpp"),
        ("gelu", "cuda", "log_softmax.cu"),
        ("softmax", "nvrtc", "log_softmax_device.cu"),
        ("softmax", "triton", "log_softmax.py"),
        ("add", "extension", "relu_extension.cpp"),
        ("relu", "extension", None),
        ("silu_mul", "cute-dsl", None),
    ],
)
def test_a_new_kernel_is_shown_one_of_another_op(kernel: str, implementation: str, name: str | None) -> None:
    """By contract and language, of its kind of op where there is one; never the op itself; nothing in a repair."""
    context = context_of(kernel, implementation, "generate")
    chosen = exemplars.exemplar(context)
    assert (chosen.name if chosen else None) == name
    text = assembly.generator(context)[-1].text
    assert ("## A whole kernel of another op" in text) == (chosen is not None)
    assert chosen is None or chosen.text.strip() in text
    assert "## A whole kernel of another op" not in assembly.generator(context, "repair")[-1].text


def test_what_the_project_accepted_comes_first(tmp_path: Path) -> None:
    """A kernel of one file that a run of the project accepted, unless it is of the op, of several files, or cannot be read."""
    entry = next(one for one in config().kernels if one.name == "layer_norm")
    target = targets.target_of(entry, entry.implementations[0], "generate")
    final = tmp_path / "20260101-000000-0000" / target.name / "final"
    (final / "kernels").mkdir(parents=True)
    (final / "kernels/layer_norm.cpp").write_text("// accepted here\n")
    (final.parent / "target.json").write_text(documents.dump(target))
    context = replace(context_of("batch_norm", "cpp", "generate"), runs=tmp_path)
    assert "// accepted here" in assembly.generator(context)[-1].text
    same = replace(context_of("layer_norm", "cpp", "generate"), runs=tmp_path)
    assert "// accepted here" not in assembly.generator(same)[-1].text
    (final / "kernels/other.h").write_text("")
    assert "// accepted here" not in assembly.generator(context)[-1].text
    (final / "kernels/other.h").unlink()
    (final.parent / "target.json").write_text("{")
    assert "// accepted here" not in assembly.generator(context)[-1].text
