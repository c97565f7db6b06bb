"""The projects of `optimise.py`: six kernels of the example, one case or two each, a copy for each policy."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from bugs import HERE
from project import EXAMPLE, commit, environment, restore

KERNELS = {
    "softmax": ("torch.nn.functional.softmax", "cuda"),
    "layer_norm": ("torch.nn.functional.layer_norm", "triton"),
    "linear": ("torch.nn.functional.linear", "cuda"),
    "conv_relu_pool": ("models.blocks.conv_relu_pool", "cuda"),
    "cross_entropy": ("torch.nn.functional.cross_entropy", "cuda"),
    "scaled_dot_product_attention": ("torch.nn.functional.scaled_dot_product_attention", "cuda"),
}
"""Op and implementation for a GPU, by kernel; on a CPU all are in C++."""
PACK = "traces/optimise"
CASES = HERE / "optimise_cases"
LANGUAGES = {
    "cpp": "{name: cpp, device: cpu, source: kernels/%s.cpp}",
    "cuda": "{name: cuda, source: kernels/%s.cu}",
    "triton": "{name: triton, device: cuda, target: kernels.%s:%s, sources: [kernels/%s.py]}",
}


def recorded(work: Path, python: str, sizes: str) -> Path:
    """DIR/project with its pack, made if it is not there yet; it is gated, and the others are copies of it."""
    project = work / "project"
    if not (project / PACK / "manifest.json").exists():
        shutil.rmtree(project, ignore_errors=True)
        left_out = shutil.ignore_patterns(
            "__pycache__", ".cgins", ".benchmarks", "conversations", "traces", "cgins.yaml"
        )
        shutil.copytree(EXAMPLE, project, ignore=left_out)
        shutil.copytree(CASES, project, ignore=left_out, dirs_exist_ok=True)
        (project / ".gitignore").write_text("__pycache__/\n.cgins/\n", encoding="utf-8")
        subprocess.run([python, "-m", "record.optimise", sizes], cwd=project, env=environment(), check=True)
    return project


def made(work: Path, name: str, configuration: str) -> Path:
    """A project of that name beside the recorded one, with its repository; made if it is not there yet."""
    project, bundle = work / name, f"{name}.bundle"
    if not (work / bundle).exists():
        if name != "project":
            shutil.rmtree(project, ignore_errors=True)
            left_out = shutil.ignore_patterns(".git", "__pycache__", ".cgins", ".pytest_cache")
            shutil.copytree(work / "project", project, ignore=left_out)
        (project / "cgins.yaml").write_text(configuration, encoding="utf-8")
        commit(project, bundle)
    elif not (project / ".git").is_dir():
        restore(project, bundle)
    return project


def configuration(device: str, llm: str = "") -> str:
    """The text of `cgins.yaml`.

    Args:
        device: `cpu` or `cuda`.
        llm: its last section, if it has one.
    """
    lines = ["version: 1", f"traces: [{PACK}]", "kernels:"]
    for name, (op, implementation) in KERNELS.items():
        text = LANGUAGES["cpp" if device == "cpu" else implementation].replace("%s", name)
        lines += [f"  {name}:", f"    op: {op}", f"    implementations: [{text}]"]
    return "\n".join([*lines, llm]).rstrip("\n") + "\n"


def searched(policy: str, candidates: int, rounds: int, branches: int) -> str:
    """The section `llm` of a policy's project."""
    return (
        f"llm:\n  provider: exchange\n  path: ../exchange-{policy}\n  policy: {policy}\n"
        f"  budget: {{candidates: {candidates}, rounds: {rounds}, branches: {branches}}}\n"
    )
