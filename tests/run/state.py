"""A service that tells in which state its process is; it imports torch, as services do that run kernels."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import random
import re
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import torch
import toys

Answer = tuple[Any, list[Any]]
_PR_GET_PDEATHSIG = 2
_PR_GET_CHILD_SUBREAPER = 37


class State(toys.Toy):
    def look(self, params: Any, buffers: list[Any]) -> Answer:
        status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
        kept = (
            "Umask",
            "SigBlk",
            "SigIgn",
            "SigCgt",
            "NoNewPrivs",
            "Cpus_allowed",
            "Threads",
            "Seccomp",
            "Uid",
            "Groups",
        )
        kept += ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
        frames, frame = [], sys._getframe()
        while frame:
            frames.append(f"{frame.f_globals['__name__']}.{frame.f_code.co_name}")
            frame = frame.f_back  # type: ignore[assignment]
        return {
            "status": {name: status[name] for name in kept},
            "frames": frames,
            "descriptors": {
                link.name: str(link.readlink()).partition(":")[0]
                for link in Path("/proc/self/fd").iterdir()
                if link.exists()
            },
            "modules": sorted(sys.modules),
            "attributes of the package": sorted(dir(sys.modules["pytest_cgins.run"])),
            "names": sorted(vars(sys.modules["__main__"])),
            "path": sys.path,
            "argv": sys.argv,
            "variables": sorted(os.environ),
            "its program": _changed("/proc/self/exe"),
            "first variables": sorted(re.findall(r"(?:^|\0)(\w+)=", Path("/proc/self/environ").read_text())),
            "limits": Path("/proc/self/limits").read_text(),
            "mounts": [
                line.split(" ", 3)[3] for line in Path("/proc/self/mountinfo").read_text().splitlines()
            ],
            "collector": [gc.isenabled(), gc.get_freeze_count() > 0, gc.get_threshold()],
            "threads": [thread.name for thread in threading.enumerate()],
            "handlers": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
            "leads": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
            "death signal": _asked(_PR_GET_PDEATHSIG),
            "adopts orphans": _asked(_PR_GET_CHILD_SUBREAPER),
            "dumpable": ctypes.CDLL(None).prctl(3),
            "folder": str(Path.cwd()),
            "torch's threads": torch.get_num_threads(),
        }, []

    def draw(self, params: Any, buffers: list[Any]) -> Answer:
        return {
            "random": random.random(),
            "numpy": np.random.rand(),
            "torch": torch.rand(1, dtype=torch.float64).item(),
            "torch seed": torch.initial_seed(),
            "multiprocessing": bytes(multiprocessing.current_process().authkey).hex(),
        }, []

    def cuda(self, params: Any, buffers: list[Any]) -> Answer:
        """Make a context and use it."""
        ones = torch.ones(100, device="cuda:0")
        return {"sum": float((ones + ones).sum()), "bad fork": torch.cuda._is_in_bad_fork()}, []

    def compute(self, params: Any, buffers: list[Any]) -> Answer:
        ones = torch.ones(600, 600, requires_grad=True)
        product = ones @ ones
        product.sum().backward()
        right = bool((product == 600).all()) and bool((ones.grad == 1200).all())
        right = right and bool((np.ones((600, 600)) @ np.ones((600, 600)) == 600).all())
        started = len(list(Path("/proc/self/task").iterdir()))
        return {
            "right": right,
            "bad fork": torch.cuda._is_in_bad_fork(),
            "threads": started > 1 or torch.get_num_threads() == 1,
        }, []


def _changed(path: str) -> str:
    """What comes of giving a file the mode that it has."""
    try:
        Path(path).chmod(Path(path).stat().st_mode & 0o7777)
    except OSError as error:
        return type(error).__name__ + str(error.errno)
    return "changed"


def _asked(option: int) -> int:
    value = ctypes.c_int()
    ctypes.CDLL(None).prctl(option, ctypes.byref(value))
    return value.value
