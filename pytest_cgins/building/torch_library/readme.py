"""Texts of an exported package for people and for pip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_cgins.building.torch_library.module import Exported, signature, template

SEED = " A generator has to be given\n  as a number there: torch cannot trace the seed of one."
BUILT_FOR = {
    "cpu": "Kernels for the CPU are compiled for that of the build machine; `CPU_FLAGS` says otherwise.",
    "cuda": "Kernels for CUDA are compiled for the GPUs of the build machine; `CUDA_ARCHS=sm_80,sm_90a` says otherwise.",
}


def pyproject(namespace: str) -> str:
    """`pyproject.toml`."""
    return template("pyproject.toml", name=namespace.replace("_", "-"), namespace=namespace)


def text(namespace: str, exported: Sequence[Exported], libraries: Sequence[dict[str, Any]]) -> str:
    """`README.md`."""
    rows = "\n".join(
        f"| `{one.operator.name}({signature(one.operator)})` | `{one.call.op}` | {', '.join(one.devices)} | "
        f"{_gradients(one, exported)} |"
        for one in exported
    )
    listed = ", ".join(f"`{library['name']}.so`" for library in libraries)
    devices = {library["device"] for library in libraries}
    compiler = ", and nvcc (`CUDA_HOME`) for the kernels on CUDA" if "cuda" in devices else ""
    random = any(
        argument.type == "Generator" for one in exported for argument in one.operator.schema.arguments
    )
    seed = SEED if random else ""
    built = "\n".join(f"  {BUILT_FOR[device]}" for device in sorted(devices))
    return template(
        "README.md", namespace=namespace, first=exported[0].operator.name, rows=rows, listed=listed, compiler=compiler,
        seed=seed, built=built,
    )  # fmt: skip


def _gradients(one: Exported, exported: Sequence[Exported]) -> str:
    if one.call.gradients:
        return f"of {', '.join(one.call.gradients)}"
    if one.operator.mutated:
        return "none"
    kernels = [f"`{other.operator.name}`" for other in exported if other.call.forward == one.call.op]
    return ", ".join(kernels) or "torch's"
