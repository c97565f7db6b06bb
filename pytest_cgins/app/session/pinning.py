"""One GPU a worker of pytest-xdist, where there are several: `gw0` has the first, `gw1` the second, and so on around.

What is pinned are the processes that run kernels and torch, by CUDA_VISIBLE_DEVICES; pytest's own processes, in which
users' tests run, keep what they see. Workers that share a GPU take turns by its lock.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

logger = logging.getLogger(__name__)

VARIABLE = "CUDA_VISIBLE_DEVICES"

_LIST_TIMEOUT_S = 60.0
_ENTRY = re.compile(r"^[ \t]*(?P<kind>GPU|MIG)\b.*\(UUID: (?P<uuid>(?:GPU|MIG)-[^)\s]+)\)", re.MULTILINE)
_COUNT = re.compile(r"(\d+)\*")
_ID = re.compile(r"(?:^|[*/])id=([^/]+)")

Gpu = tuple[str, tuple[str, ...]]
"""UUID of a GPU, and those of its MIG devices, if it is divided into such."""
Listing = Callable[[], tuple[Gpu, ...]]


def of(config: pytest.Config) -> dict[str, str]:
    """What the processes that run kernels for this pytest process are to have in their environment."""
    return pinned_environment(getattr(config, "workerinput", None)) if _uses_gpus(config) else {}


def header(config: pytest.Config) -> list[str]:
    """For xdist's controller: which worker is on which GPU, a line a GPU."""
    names = _worker_names(config)
    return told(names) if names and _uses_gpus(config) else []


def pinned_environment(
    workerinput: Mapping[str, Any] | None,
    *,
    environ: Mapping[str, str] = os.environ,
    listing: Listing | None = None,
) -> dict[str, str]:
    """CUDA_VISIBLE_DEVICES for the workers of a pytest process; {} outside of xdist and with one GPU at most.

    Args:
        workerinput: xdist's, whose `workerid` ends with a number; None outside of it.
        environ: of pytest. If CUDA_VISIBLE_DEVICES is set there, one of its entries is chosen.
        listing: the GPUs of this machine; by default nvidia-smi's list.
    """
    if workerinput is None:
        return {}
    gpus = usable(environ.get(VARIABLE), (listing or list_gpus)())
    return {VARIABLE: gpus[_number(workerinput["workerid"]) % len(gpus)]} if len(gpus) > 1 else {}


def told(
    workers: Sequence[str], *, environ: Mapping[str, str] = os.environ, listing: Listing | None = None
) -> list[str]:
    """Lines such as `cgins: gw0, gw2 on GPU-…`; none with one GPU at most. Arguments as of `pinned_environment`."""
    gpus = usable(environ.get(VARIABLE), (listing or list_gpus)())
    if len(gpus) < 2:
        return []
    there: dict[str, list[str]] = {}
    for name in workers:
        there.setdefault(gpus[_number(name) % len(gpus)], []).append(name)
    lines = [
        f"cgins: {', '.join(names)} on {gpu if '-' in gpu else f'GPU {gpu}'}" for gpu, names in there.items()
    ]
    idle = len(gpus) - len(there)
    return [*lines, f"cgins: {idle} of {len(gpus)} GPUs idle: -n {len(gpus)} uses all"] if idle else lines


def usable(visible: str | None, gpus: tuple[Gpu, ...]) -> tuple[str, ...]:
    """The devices that a process can choose from, each as an entry for CUDA_VISIBLE_DEVICES.

    Args:
        visible: what CUDA_VISIBLE_DEVICES is set to; None if it is not set.
        gpus: those of the machine.

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


def _number(worker: str) -> int:
    """12 of `gw12`; 0 for a name without a number."""
    digits = re.search(r"\d+$", worker)
    return int(digits[0]) if digits else 0


def _worker_names(config: pytest.Config) -> list[str]:
    """Names that xdist's controller gives to its workers; [] in any other process."""
    if hasattr(config, "workerinput") or config.getoption("dist", "no") == "no":
        return []
    names: list[str] = []
    numbers = itertools.count()
    for spec in config.getoption("tx", None) or []:
        count, name = _COUNT.match(spec), _ID.search(spec)
        names += [name[1] if name else f"gw{next(numbers)}" for _ in range(int(count[1]) if count else 1)]
    return names


def _uses_gpus(config: pytest.Config) -> bool:
    """Whether there is something to pin: without isolation kernels run in pytest's own process, which is not."""
    return (
        config.getoption("--cgins-isolation") == "process"
        and config.getoption("--cgins-device") != "cpu"
        and not config.getoption("--cgins-compile-only")
    )
