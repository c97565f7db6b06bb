"""A folder with traces, a cgins.yaml and kernel sources, in which planted kernels are gated for real."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import torch
import yaml

import pytest_cgins
from pytest_cgins import config
from pytest_cgins.building.build import build
from pytest_cgins.building.contracts.source import find
from pytest_cgins.core.case import KernelSource
from pytest_cgins.core.errors import BuildError
from tests.planted.calls import OPS, Calls
from tests.planted.edits import KERNELS, Source

MODELS = KERNELS.parent / "models"
_ONLY_FLOAT32 = """#include <cgins.h>
template <typename Function>
int only_float32(const DLTensor*, Function&& function) { return function(float{}); }
"""


def make(
    folder: Path,
    sources: Sequence[Source],
    device: str,
    dtypes: Sequence[torch.dtype],
    *,
    flags: Sequence[str] = (),
) -> config.Config:
    """Write the whole project into an empty folder, and load its configuration.

    Args:
        folder: where to.
        sources: the kernels.
        device: theirs.
        dtypes: a trace pack is recorded for each; kernels for float32 alone take a third less time to compile.
        flags: further ones of every kernel's compiler.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(MODELS, folder / "models", ignore=shutil.ignore_patterns("__pycache__"))
    names = [str(dtype).removeprefix("torch.") for dtype in dtypes]
    with _models_of(folder):
        for name, dtype in zip(names, dtypes, strict=True):
            with pytest_cgins.record(folder / "traces" / name, ops=list(OPS.values())):
                Calls(dtype).run()
    entries = {}
    for source in sources:
        # Headers are edited, too, so every kernel has its own.
        kernels = folder / "kernels" / source.name
        kernels.mkdir(parents=True)
        file = kernels / f"{source.op}{source.suffix}"
        texts = {file.name: source.text, **source.headers}
        if device == "cpu" and [*dtypes] == [torch.float32]:
            texts = {
                path: text.replace("cgins::dispatch_floating(", "only_float32(")
                for path, text in texts.items()
            }
            texts[file.name] = texts[file.name].replace("#include", f"{_ONLY_FLOAT32}#include", 1)
        for path, text in texts.items():
            (kernels / path).write_text(text)
        implementation = {
            "name": "planted", "device": device, "source": file.relative_to(folder).as_posix(), "flags": [*flags],
        }  # fmt: skip
        entries[source.name] = {"op": OPS[source.op], "implementations": [implementation]}
    document = {"version": 1, "traces": [f"traces/{name}" for name in names], "kernels": entries}
    file = folder / "cgins.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return config.load(file)


@contextmanager
def _models_of(folder: Path) -> Iterator[None]:
    """Meanwhile `models` is the package in `folder`, whatever was imported under that name before."""
    before = _take_models()
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        _take_models()
        sys.modules.update(before)


def _take_models() -> dict[str, object]:
    names = [name for name in sys.modules if name.partition(".")[0] == "models"]
    return {name: sys.modules.pop(name) for name in names}


def source(loaded: config.Config, kernel: str, implementation: str, device: str) -> KernelSource:
    """The source of one implementation."""
    entry = next(entry for entry in loaded.kernels if entry.name == kernel)
    wanted = (implementation, device)
    return find(loaded, entry, next(i for i in entry.implementations if (i.name, i.device) == wanted))


def build_all(
    loaded: config.Config, names: Sequence[str], device: str, cache: Path, jobs: int
) -> dict[str, str]:
    """Build every kernel, `jobs` at a time; what the compiler says of those that it refuses."""

    def attempt(name: str) -> tuple[str, str]:
        try:
            build(source(loaded, name, "planted", device), cache=cache)
        except BuildError as error:
            return name, f"{error}\n{error.log}"
        return name, ""

    with ThreadPoolExecutor(jobs) as pool:
        return {name: log for name, log in pool.map(attempt, names) if log}
