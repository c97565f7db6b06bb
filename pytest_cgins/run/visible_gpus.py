"""The GPUs of this machine that a process may choose from, by CUDA_VISIBLE_DEVICES; a part of one (MIG) counts as one."""

from __future__ import annotations

import logging
import re
import subprocess

logger = logging.getLogger(__name__)

VARIABLE = "CUDA_VISIBLE_DEVICES"

_LIST_TIMEOUT_S = 60.0
_ENTRY = re.compile(r"^[ \t]*(?P<kind>GPU|MIG)\b.*\(UUID: (?P<uuid>(?:GPU|MIG)-[^)\s]+)\)", re.MULTILINE)

Gpu = tuple[str, tuple[str, ...]]
"""UUID of a GPU, and those of its MIG devices, if it is divided into such."""


def usable(visible: str | None, gpus: tuple[Gpu, ...]) -> tuple[str, ...]:
    """The devices that a process can choose from, each as an entry for CUDA_VISIBLE_DEVICES.

    `visible` is what that is set to, None if it is not.

    Of a list CUDA takes what comes before the first entry that names no GPU (CUDA C++ Programming Guide, "CUDA
    Environment Variables"), and nothing if one of those comes twice.
    """
    known = tuple(name for gpu, parts in gpus for name in parts or (gpu,))
    if visible is None:
        return known
    found: list[str] = []
    for entry in (one.strip() for one in visible.split(",")):
        if not _names_one(entry, gpus):
            break
        found.append(entry)
    return tuple(found) if len(set(found)) == len(found) else ()


def list_gpus() -> tuple[Gpu, ...]:
    """The GPUs that nvidia-smi lists; () where it is not installed or does not work, as without a driver."""
    try:
        answer = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=_LIST_TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        return ()
    except (OSError, subprocess.TimeoutExpired) as error:
        logger.warning("nvidia-smi does not list the GPUs, so workers are not pinned to them: %s", error)
        return ()
    return parse_listing(answer.stdout)


def parse_listing(text: str) -> tuple[Gpu, ...]:
    """What `nvidia-smi -L` prints: a line a GPU, and below it an indented one a MIG device."""
    found: list[tuple[str, list[str]]] = []
    for entry in _ENTRY.finditer(text):
        if entry["kind"] == "GPU":
            found.append((entry["uuid"], []))
        elif found:
            found[-1][1].append(entry["uuid"])
    return tuple((gpu, tuple(parts)) for gpu, parts in found)


def _names_one(entry: str, gpus: tuple[Gpu, ...]) -> bool:
    """Whether an entry is the index of a GPU, the beginning of one UUID, or an older driver's MIG-GPU-…/i/j."""
    if entry.isdecimal():
        return int(entry) < len(gpus)
    names = [name for gpu, parts in gpus for name in (gpu, *parts)]
    names += [f"MIG-{gpu}" for gpu, _ in gpus]
    beginning = entry.partition("/")[0]
    return len(beginning) > len("GPU-") and sum(name.startswith(beginning) for name in names) == 1
