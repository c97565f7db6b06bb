"""Where parts of CUDA's toolkit may lie: a folder that a variable names, NVIDIA's packages for Python, the usual folder."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

USUAL = Path("/usr/local/cuda")


def named() -> list[Path]:
    """The folder of `$CUDA_HOME`, else of `$CUDA_PATH`; [] without either."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    return [Path(home)] if home else []


def program(name: str) -> Path | None:
    """A program of the toolkit: of the folder that is named, on PATH, of the usual folder, or of a package; None without."""
    on_path = shutil.which(name)
    paths = [
        *(home / "bin" / name for home in named()),
        *([Path(on_path)] if on_path else []),
        USUAL / "bin" / name,
    ]
    return _executable(paths) or _executable(packaged(f"*/bin/{name}"))


def _executable(paths: Iterable[Path]) -> Path | None:
    return next((path for path in paths if os.access(path, os.X_OK)), None)


def packaged(pattern: str) -> list[Path]:
    """What the packages have by a pattern from their common folder, such as `cu13/lib`; the newest version first."""
    spec = find_spec("nvidia")  # a namespace: nothing is imported
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()] if spec else []
    found = [(folder, path) for folder in folders for path in folder.glob(pattern)]
    found.sort(key=lambda pair: -int(re.sub(r"\D", "", pair[1].relative_to(pair[0]).parts[0]) or 0))
    return [path for _, path in found]
