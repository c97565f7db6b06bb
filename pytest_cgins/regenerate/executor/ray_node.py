"""The actor on a node of a Ray cluster. It is imported there, so it imports nothing of Ray until it is asked."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_cgins import __version__
from pytest_cgins.core import documents
from pytest_cgins.core.errors import SandboxUnavailable
from pytest_cgins.regenerate.executor.messages import EvaluationRequest, NodeReport, TargetOnNode
from pytest_cgins.run import environment, gpu_check
from pytest_cgins.run.sandbox.outside import has_gpu
from pytest_cgins.run.sandbox.sandbox import Sandbox

if TYPE_CHECKING:
    from pytest_cgins.regenerate.executor.node import Node, Reports

FREE_WAIT_S = 60.0
"""How long a GPU that Ray gave out may still be held by whoever had it before (ray#44821)."""
FREE_SHARE = 0.9
"""Of its memory: a context of our own takes the rest on a small GPU."""
_POLL_S = 0.5


class NodeActor:
    """One slot. Everything that goes in and out is a document, an archive or a report.

    Args:
        fenced: whether candidates run in a sandbox.
        is_cuda: whether it has a GPU.
        cache: folder of built kernels; "" for the user's.
    """

    def __init__(self, fenced: bool, is_cuda: bool, cache: str) -> None:
        if environment.has_secrets():
            environment.shield()
        self._fenced = fenced
        self._is_cuda = is_cuda
        self._cache = Path(cache) if cache else None
        self._node: Node | None = None

    def report(self) -> str:
        """A `NodeReport`."""
        import ray

        node = ray.get_runtime_context().get_node_id()
        name = f"{socket.gethostname()} ({ray.util.get_node_ip_address()}, node {node[:8]})"
        gpu, trouble, remedy = "", "", ""
        try:
            if self._fenced:
                Sandbox(devices=has_gpu()).require()
        except SandboxUnavailable as error:
            trouble, remedy = error.what, error.remedy
        if self._is_cuda and not trouble:
            gpu, trouble = _free_gpu()
            name += f", GPU {os.environ.get('CUDA_VISIBLE_DEVICES', '')}"
        self._name = name
        return documents.dump(
            NodeReport(name=name, node=node, version=__version__, gpu=gpu, trouble=trouble, remedy=remedy)
        )

    def answer(self, spec: str, archives: list[Any], request: str) -> tuple[str, Reports]:
        """An `EvaluationResult` and reports of ncu.

        Args:
            spec: a `TargetOnNode`.
            archives: references to the parts of the target's `Archives`.
            request: an `EvaluationRequest`.
        """
        import ray

        from pytest_cgins.regenerate.executor.archive import Archives
        from pytest_cgins.regenerate.executor.node import Node

        if self._node is None:
            sandbox = Sandbox(devices=has_gpu()) if self._fenced else None
            self._node = Node(self._name, sandbox=sandbox, cache=self._cache)
        target = documents.load(TargetOnNode, spec)
        if not self._node.knows(target):
            self._node.take(target, Archives(*ray.get(archives)))
        result, reports = self._node.answer(target, documents.load(EvaluationRequest, request))
        return documents.dump(result), reports

    def close(self) -> None:
        """End what it is doing."""
        if self._node is not None:
            self._node.close()


def _free_gpu() -> tuple[str, str]:
    """The GPU's name, and what is wrong with it: it is not there, or is held by somebody all the while."""
    ends = time.monotonic() + FREE_WAIT_S
    while (state := gpu_check.ask({})).error or state.free < FREE_SHARE:
        if time.monotonic() > ends:
            held = f"others hold {1 - state.free:.0%} of its memory"
            return "", f"its GPU cannot be used after {FREE_WAIT_S:.0f} s: {state.error or held}"
        time.sleep(_POLL_S)
    return state.name, ""
