"""A folder with traces, a cgins.yaml and kernel sources, in which planted kernels are gated for real."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import yaml
from torch.nn import functional

import pytest_cgins
from pytest_cgins import config
from pytest_cgins.errors import BuildError
from pytest_cgins.evaluate import Evaluator
from pytest_cgins.kernels.build import build
from tests.planted.edits import HEADERS, KERNELS, Source

HERE = Path(__file__).parent
OPS = {
    "linear": "torch.nn.functional.linear",
    "layer_norm": "torch.nn.functional.layer_norm",
    "gelu": "torch.nn.functional.gelu",
    "softmax": "torch.nn.functional.softmax",
    "rms_norm": "planted_ops.rms_norm",
}


def record_traces(folder: Path, dtypes: Sequence[torch.dtype]) -> None:
    """Record one pack a dtype: contiguous and transposed linear, softmax over two axes, both norms, gelu, long rows."""
    for dtype in dtypes:
        generator = torch.Generator().manual_seed(7)

        def normal(
            *shape: int, like: torch.dtype = dtype, source: torch.Generator = generator
        ) -> torch.Tensor:
            return torch.randn(*shape, generator=source).to(like)

        name = str(dtype).removeprefix("torch.")
        with pytest_cgins.record(folder / "traces" / name, ops=list(OPS.values())):
            weight, bias = normal(90, 96) / 96**0.5, normal(90)
            functional.linear(normal(37, 96), weight, bias)
            functional.linear(normal(96, 37).T, weight, bias)
            functional.layer_norm(normal(24, 192), (192,), normal(192), normal(192))
            functional.gelu(normal(5, 77))
            functional.softmax(normal(6, 40, 24), dim=1)
            functional.softmax(normal(6, 40, 24), dim=-1)
            sys.modules["planted_ops"].rms_norm(normal(24, 192), normal(192))
            # Few and long rows: an error that a whole row shares is not averaged away.
            functional.linear(normal(3, 2048), normal(70, 2048) / 2048**0.5, normal(70))
            functional.layer_norm(normal(3, 1024), (1024,), normal(1024), normal(1024))
            functional.softmax(normal(1, 1000), dim=-1)
            sys.modules["planted_ops"].rms_norm(normal(3, 1024), normal(1024))


def make(
    folder: Path, sources: Sequence[Source], device: str, dtypes: Sequence[torch.dtype]
) -> config.Config:
    """Write the whole project into an empty folder, and load its configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    kernels = folder / "kernels"
    kernels.mkdir()
    for header in HEADERS:
        shutil.copy(KERNELS / header, kernels)
    shutil.copy(HERE / "variants" / "variant.h", kernels)
    shutil.copy(HERE / "planted_ops.py", folder)
    sys.path.insert(0, str(folder))
    try:
        __import__("planted_ops")
        record_traces(folder, dtypes)
    finally:
        sys.path.remove(str(folder))
        del sys.modules["planted_ops"]
    entries = {}
    for source in sources:
        file = kernels / f"{source.name}{source.suffix}"
        file.write_text(source.text)
        implementation = {"name": "planted", "device": device, "source": f"kernels/{file.name}"}
        entries[source.name] = {"op": OPS[source.op], "implementations": [implementation]}
    packs = [f"traces/{str(dtype).removeprefix('torch.')}" for dtype in dtypes]
    file = folder / "cgins.yaml"
    file.write_text(yaml.safe_dump({"version": 1, "traces": packs, "kernels": entries}, sort_keys=False))
    return config.load(file)


def build_all(
    evaluator: Evaluator, names: Sequence[str], device: str, cache: Path, jobs: int
) -> dict[str, str]:
    """Build every kernel, `jobs` at a time; what the compiler says of those that it refuses."""

    def attempt(name: str) -> tuple[str, str]:
        try:
            build(evaluator.source(name, "planted", device), cache=cache)
        except BuildError as error:
            return name, f"{error}\n{error.log}"
        return name, ""

    with ThreadPoolExecutor(jobs) as pool:
        return {name: log for name, log in pool.map(attempt, names) if log}
