"""Triton kernels compiled before they are needed, several at a time: their first calls then find them on disk.

Beside the session some processes call each kernel on zeros of its cases' sizes (`run/jit_compile.py`). Nobody waits for
them: a kernel that they have not reached is compiled by its first call. They rest while anything is timed, and end with
the builds.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pytest_cgins.building.build_queue import BuildQueue
from pytest_cgins.building.compilers import slots
from pytest_cgins.building.compilers.process import run_stages
from pytest_cgins.building.kernel_builds import KernelBuilds
from pytest_cgins.core import documents
from pytest_cgins.core.case import Case, CompiledKernel, KernelSource
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.errors import CginsError

logger = logging.getLogger(__name__)

LEAST_KERNELS = 2
"""Besides the first: a process takes longer to start than most kernels to compile."""
MOST_PROCESSES = 8
"""Each takes half a GiB of the device for its context."""
PROCESS_NBYTES = 1 << 30
"""What one takes of the host's memory."""
LIMIT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JitKernel(Document):
    """A kernel to compile."""

    compiled: CompiledKernel
    """Of contract `python`."""
    cases: tuple[Case, ...]
    """For whose sizes."""

    @property
    def key(self) -> str:
        """Digest of the sources and the calls."""
        text = "\n".join([self.compiled.key, *(case.trace_id for case in self.cases)])
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class JitRequest(Document):
    """What one process does."""

    import_root: str
    """Folder that kernels are imported from."""
    folder: str
    """Where it is put down which kernels are compiled."""
    kernels: tuple[JitKernel, ...]
    """In the order in which they will be needed."""


def compile_ahead(
    cases: Iterable[Case],
    kernels: KernelBuilds,
    *,
    import_root: str,
    environment: Mapping[str, str],
    folder: Path,
) -> None:
    """Have the kernels of some cases compiled, in their order, and wait for nothing; a file in `folder` says of each that it is."""
    wanted: dict[KernelSource, list[Case]] = {}
    for case in cases:
        source = kernels.source(case.key)
        if source is not None and source.contract == "python" and not source.interpret:
            wanted.setdefault(source, []).append(case)
    ahead = list(wanted.items())[1:]  # the session itself calls the first at once
    if len(ahead) >= LEAST_KERNELS:
        processes = min(MOST_PROCESSES, max(1, kernels.builds.jobs // 2), len(ahead))
        for index in range(processes):
            share = ahead[index::processes]
            kernels.builds.employ(partial(_compile, share, kernels.builds, import_root, environment, folder))


def _compile(
    kernels: Sequence[tuple[KernelSource, Sequence[Case]]],
    builds: BuildQueue,
    import_root: str,
    environment: Mapping[str, str],
    folder: Path,
) -> None:
    """Build what the kernels need, and have a process compile them; whoever needs a kernel is told of its errors."""
    asked = []
    for source, cases in kernels:
        with suppress(CginsError, OSError):
            kernel = JitKernel(compiled=builds.result(source), cases=tuple(cases))
            if not (folder / kernel.key).exists():
                asked.append(kernel)
    if not asked:
        return
    request = JitRequest(import_root=import_root, folder=str(folder), kernels=tuple(asked))
    deadline = time.monotonic() + LIMIT_S
    with (
        suppress(CginsError, OSError),
        tempfile.TemporaryDirectory() as scratch,
        slots.hold(folder.parent, "JIT compilers", PROCESS_NBYTES, deadline),
    ):
        (Path(scratch) / "request.json").write_text(documents.dump(request), encoding="utf-8")
        code = "from pytest_cgins.run.jit_compile import main; main()"
        # A compiler's limit counts addresses, and a context of CUDA reserves more of them.
        unlimited = ["sh", "-c", 'ulimit -S -v "$(ulimit -H -v)"; exec "$@"', "sh"]
        command = [*unlimited, sys.executable, "-c", code, "request.json"]
        outcome = run_stages([[command]], Path(scratch), "JIT compilers", deadline, environment)
        logger.debug("JIT compilers: exit status %s\n%s", outcome.status, outcome.log)
