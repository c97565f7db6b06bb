"""The actor on a node of a Ray cluster."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

import ray

from pytest_cgins import __version__
from pytest_cgins.core.errors import SandboxUnavailable
from pytest_cgins.regenerate.executor.node import Node
from pytest_cgins.run import environment, gpu_check
from pytest_cgins.run.sandbox.outside import has_gpu
from pytest_cgins.run.sandbox.sandbox import Sandbox

FREE_WAIT_S = 60.0
"""How long a GPU that Ray gave out may still be held by whoever had it before (ray#44821)."""
FREE_SHARE = 0.9
"""Of its memory: a context of our own takes the rest on a small GPU."""
_POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """What a node says of itself before it is asked."""

    version: str
    """Of pytest-cgins there."""
    name: str
    """Host and address, and its GPU if it has one."""
    node: str
    """Ray's id of it."""
    gpu: str
    """Name of its GPU; "" if it has none."""
    trouble: str
    """Why it can evaluate nothing; "" if it can."""
    remedy: str
    """What to do about that."""


class NodeActor(Node):
    """One slot. Its archives are fetched with the first request of a target.

    Args:
        fenced: whether candidates run in a sandbox.
        is_cuda: whether it has a GPU.
        cache: folder of built kernels, by default the user's.
    """

    def __init__(self, fenced: bool, is_cuda: bool, cache: Path | None) -> None:
        if environment.has_secrets():
            environment.shield()
        self._is_cuda = is_cuda
        self._fence = Sandbox(devices=has_gpu()) if fenced else None
        self._id = ray.get_runtime_context().get_node_id()
        name = f"{socket.gethostname()} ({ray.util.get_node_ip_address()}, node {self._id[:8]})"
        name += f", GPU {os.environ.get('CUDA_VISIBLE_DEVICES', '')}" * is_cuda
        super().__init__(name, sandbox=self._fence, cache=cache, fetched=ray.get)

    def report(self) -> NodeReport:
        """What it is, and whether it is fit."""
        gpu, trouble, remedy = "", "", ""
        try:
            if self._fence is not None:
                self._fence.require()
        except SandboxUnavailable as error:
            trouble, remedy = error.what, error.remedy
        if self._is_cuda and not trouble:
            gpu, trouble = _free_gpu()
        return NodeReport(
            version=__version__, name=self.name, node=self._id, gpu=gpu, trouble=trouble, remedy=remedy
        )


def _free_gpu() -> tuple[str, str]:
    """The GPU's name, and what is wrong with it: it is not there, or is held by somebody all the while."""
    ends = time.monotonic() + FREE_WAIT_S
    while (state := gpu_check.ask({})).error or state.free < FREE_SHARE:
        if time.monotonic() > ends:
            held = f"others hold {1 - state.free:.0%} of its memory"
            return "", f"its GPU cannot be used after {FREE_WAIT_S:.0f} s: {state.error or held}"
        time.sleep(_POLL_S)
    return state.name, ""
