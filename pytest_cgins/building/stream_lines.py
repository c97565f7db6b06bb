"""Lines of CUDA sources that may leave the stream that a kernel is given: a hint for people, never a verdict."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from pytest_cgins.building.contracts.launch_line import split
from pytest_cgins.core.text import text_of

SHOWN = 5
_SUFFIXES = (".cu", ".cuh", ".cpp", ".h", ".hpp")
_LAUNCH = re.compile(r"<<<(.*?)>>>")
_DEFAULT = ("0", "NULL", "nullptr", "{}")
_OTHER = re.compile(
    r"cudaStreamPerThread|cudaStreamLegacy|cudaStreamCreate|cudaMem(?:cpy|set)(?:2D|3D)?\("
    r"|cudaMem(?:cpy|set)\w*Async\(.*,\s*(?:0|NULL|nullptr)\s*\)|cudaMem(?:cpy|set)\w*Async\([^;]*cudaMemcpy\w+\s*\)"
    r"|(?:cublas|cudnn|cufft|cusparse|curand)\w*Create\w*\("
)


def suspect(files: Iterable[str]) -> list[str]:
    """Launches without a stream, copies that take none, other streams and libraries' handles: `relu.cu:12: …`."""
    found = [
        f"{Path(file).name}:{number}: {line.strip()}"
        for file in files
        if Path(file).suffix in _SUFFIXES
        for number, line in enumerate(text_of(Path(file)).splitlines(), 1)
        if _leaves_stream(line.partition("//")[0])
    ]
    more = len(found) - SHOWN
    return [*found[:SHOWN], *([f"and {more} more"] if more > 0 else [])]


def _leaves_stream(line: str) -> bool:
    launch = _LAUNCH.search(line)
    if launch is None:
        return bool(_OTHER.search(line))
    arguments = split(launch[1])
    return len(arguments) < 4 or arguments[3] in _DEFAULT or "cudaStream" in arguments[3]
