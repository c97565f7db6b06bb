"""One GPU a worker of pytest-xdist, where there are several: `gw0` has the first, `gw1` the second, and so on around.

What is pinned are the processes that run kernels and torch, by CUDA_VISIBLE_DEVICES; pytest's own processes, in which
users' tests run, keep what they see. Workers that share a GPU take turns by its lock.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from pytest_cgins.run.visible_gpus import VARIABLE, Gpu, list_gpus, usable

_COUNT = re.compile(r"(\d+)\*")
_ID = re.compile(r"(?:^|[*/])id=([^/]+)")

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

    If it is set in pytest's environment, one of its entries is chosen; else one of the GPUs that nvidia-smi lists.
    """
    if workerinput is None:
        return {}
    gpus = usable(environ.get(VARIABLE), (listing or list_gpus)())
    return {VARIABLE: gpus[_number(workerinput["workerid"]) % len(gpus)]} if len(gpus) > 1 else {}


def told(
    workers: Sequence[str], *, environ: Mapping[str, str] = os.environ, listing: Listing | None = None
) -> list[str]:
    """Lines such as `cgins: gw0, gw2 on GPU-…`; none with one GPU at most."""
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
