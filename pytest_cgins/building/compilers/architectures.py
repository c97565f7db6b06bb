"""CUDA architectures: what their names mean, which ones nvcc knows, which this host has, and which a kernel is built for ahead."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from pytest_cgins.building.cache.store import default_cache
from pytest_cgins.building.compilers.process import ASK_LIMIT_S, ask
from pytest_cgins.core import atomic
from pytest_cgins.core.errors import SourceError

NAME = re.compile(r"(sm|compute)_(\d{2,3})([af]?)")
PORTABLE_ARCHS = ("sm_80", "compute_80")
COMMON = ("sm_80", "sm_90a", "sm_100")
"""What a kernel is built for ahead of time when nobody says."""


def number(arch: str) -> int:
    """90 for `sm_90`, `sm_90a` and `compute_90`.

    Raises:
        SourceError: that is no architecture's name.
    """
    named = NAME.fullmatch(arch)
    if named is None:
        raise SourceError(
            f'"{arch}" is not a CUDA architecture', remedy="write sm_90a, or compute_80 for PTX"
        )
    return int(named[2])


@lru_cache(maxsize=4)
def known_to(nvcc: tuple[str, ...]) -> tuple[str, ...]:
    """Architectures that a compiler makes machine code for, ascending; () if it does not say."""
    try:
        return known_in(ask([*nvcc, "--help"]).log)
    except OSError:
        return ()


def known_in(text: str) -> tuple[str, ...]:
    """Architectures in quotes in the compiler's help, ascending."""
    return tuple(sorted(set(re.findall(r"'(sm_\d+[af]?)'", text)), key=lambda arch: (number(arch), arch)))


def require_known(archs: Sequence[str], nvcc: tuple[str, ...]) -> None:
    """Refuse architectures that the compiler does not know.

    Raises:
        SourceError: one is unknown; the remedy names those that are known.
    """
    names = known_to(nvcc)
    for arch in archs:
        if names and f"sm_{arch.partition('_')[2]}" not in names:
            raise SourceError(
                f"{' '.join(nvcc)} cannot compile for {arch}",
                remedy=f"it knows {', '.join(names)}; name one of them, or install another CUDA toolkit",
            )


def ahead(declared: tuple[str, ...], known: tuple[str, ...]) -> tuple[str, ...]:
    """Architectures to build a kernel for when the command line names none.

    Args:
        declared: `archs` of cgins.yaml.
        known: what the compiler knows; () if nobody can say.

    Returns:
        Those with machine code of `declared`, else of `$CGINS_CUDA_ARCHS`, else those of sm_80, sm_90a and sm_100
        that the compiler knows.
    """
    for names in (declared, _of_environment()):
        chosen = tuple(name for name in names if not name.startswith("compute_"))
        if chosen:
            return chosen
    return tuple(arch for arch in COMMON if not known or arch in known)


def built_as(asked: str, declared: tuple[str, ...]) -> str | None:
    """The architecture to build a kernel for when `asked` is wanted; None if it is written for others only.

    A kernel that names sm_90a runs on the chip of sm_90, and only so built: of one chip, the kernel's own
    spelling counts.
    """
    machine = [arch for arch in declared if not arch.startswith("compute_")]
    if not machine or asked in machine:
        return asked
    return next((arch for arch in machine if number(arch) == number(asked)), None)


def runs_on(arch: str, capability: tuple[int, int]) -> bool:
    """Whether a GPU runs what was built for an architecture.

    Machine code runs on later chips of one generation, PTX on every later chip; both only there and nowhere else if
    the name ends in `a`.

    Args:
        arch: such as `sm_80`, `sm_90a`, `sm_100f` or `compute_80`.
        capability: major and minor number of the GPU.
    """
    chip = divmod(number(arch), 10)
    if arch.endswith("a"):
        return chip == capability
    if arch.startswith("sm_") or arch.endswith("f"):
        return chip[0] == capability[0] and chip[1] <= capability[1]
    return chip <= capability


@lru_cache(maxsize=1)
def present_archs() -> tuple[str, ...]:
    """CUDA architectures to build for when a kernel names none.

    `$CGINS_CUDA_ARCHS` (comma-separated), else those of the devices in this host, else sm_80 with PTX,
    which every later device can run.
    """
    if named := _of_environment():
        return named
    if not shutil.which("nvidia-smi"):
        return PORTABLE_ARCHS
    capabilities = sorted(set(re.findall(r"^\s*(\d+)\.(\d+)\s*$", _compute_capabilities(), re.MULTILINE)))
    return tuple(f"sm_{major}{minor}" for major, minor in capabilities) or PORTABLE_ARCHS


def _of_environment() -> tuple[str, ...]:
    return tuple(arch.strip() for arch in os.environ.get("CGINS_CUDA_ARCHS", "").split(",") if arch.strip())


def _compute_capabilities(driver: Path = Path("/proc/driver/nvidia")) -> str:
    """What nvidia-smi says, remembered by what the driver tells of itself: asking takes longer than a cache hit."""
    files = [driver / "version", *sorted(driver.glob("gpus/*/information"))]
    told: list[object] = [sorted(place.name for place in Path("/dev").glob("nvidia[0-9]*"))]
    with suppress(OSError):
        told += [file.read_text(encoding="utf-8", errors="replace") for file in files]
    kept = default_cache() / f"devices-{hashlib.sha256(repr(told).encode()).hexdigest()[:16]}"
    known = len(told) == 1 + len(files) > 2
    if known:
        with suppress(OSError, UnicodeDecodeError):
            return kept.read_text(encoding="ascii")
    text = ""
    with suppress(OSError, subprocess.TimeoutExpired):  # as without the tool
        text = subprocess.run(
            ("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"),
            capture_output=True, text=True, timeout=ASK_LIMIT_S, check=False,
        ).stdout  # fmt: skip
    if known and re.fullmatch(r"(?:\d+\.\d+\s*)+", text):
        with suppress(OSError):
            atomic.write_text(kept, text)
    return text
