"""The process of `jit_pool`: calls kernels on zeros, while Triton compiles and launches nothing, and nobody times.

CuTe's `cute.compile` keeps nothing on disk, so that no process can compile for another; what a `cute.jit` function
compiles when it is called is kept, as Triton's is, but then runs.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from pytest_cgins.building.loading.callable import load
from pytest_cgins.building.loading.imports import import_from
from pytest_cgins.core import documents, locks
from pytest_cgins.core.dtypes import ITEMSIZE, extent
from pytest_cgins.core.layout import rebuild
from pytest_cgins.core.trace import TensorMeta
from pytest_cgins.run.jit_pool import LIMIT_S, JitKernel, JitRequest
from pytest_cgins.timing import lock
from pytest_cgins.timing.devices import timed_device
from pytest_cgins.verify.probes import autotuner
from pytest_cgins.verify.probes.recompiles import Compilations

MOST_NBYTES = 1 << 30
"""Of a case's tensors, beside which others must have room on the device."""
MOST_HELD_S = 60.0
"""For a call: who waits to time gives up after `lock.WAIT_S`."""


def main() -> None:
    """Compile what the request in the file that is named first asks for."""
    request = documents.load(JitRequest, Path(sys.argv[1]).read_bytes())
    import_from(request.import_root)
    folder = Path(request.folder)
    folder.mkdir(parents=True, exist_ok=True)
    compilations = Compilations()
    for kernel in request.kernels:
        path = folder / kernel.key
        claim = locks.try_lock(path.with_suffix(".lock"))
        if claim is None:  # another session compiles it
            continue
        try:
            if not path.exists():
                _call(kernel, compilations)
                path.touch()
        except BaseException as error:  # noqa: BLE001 - a kernel may raise anything; who verifies it tells
            print(f"{kernel.compiled.source.name}: {type(error).__name__}: {error}")
        finally:
            path.with_suffix(".lock").unlink(missing_ok=True)
            os.close(claim)
    print(f"compiled {compilations.counted()}", flush=True)
    with _verifying(
        request.kernels[0].cases[0].device
    ):  # giving a GPU back disturbs timings as taking one does
        os._exit(0)


def _call(kernel: JitKernel, compilations: Compilations) -> None:
    """Call a kernel on its cases' sizes."""
    loaded = load(kernel.compiled)
    compilations.listen()  # which puts down how long each took
    if not compilations.can_hear() or autotuner.has_others():
        return  # an autotuner that keeps its choices would keep what nobody measured
    with nothing_launched():
        for case in kernel.cases:
            spans = _spans(case.tensors)
            if case.call is not None and sum(spans) <= MOST_NBYTES:
                with _verifying(case.device):
                    zeros = [torch.zeros(nbytes, dtype=torch.uint8) for nbytes in spans]
                    tensors = rebuild(case.tensors, zeros, case.device)
                    loaded.bind(case.call, tensors, (), case.device).run()


@contextmanager
def _verifying(name: str) -> Iterator[None]:
    """Hold a device as those do who verify on it: sessions of others may time there. A call that hangs ends the process."""
    device = timed_device(name)
    with lock.verifying(device.lock_key(), wait_s=LIMIT_S):
        faulthandler.dump_traceback_later(MOST_HELD_S, exit=True)
        try:
            device.make_current()
            yield
            device.synchronize()  # what a kernel has torch do beside is over when others may time
        finally:
            faulthandler.cancel_dump_traceback_later()


def _spans(metas: Sequence[TensorMeta]) -> list[int]:
    """Bytes of each storage, up to the last element of its tensors."""
    nbytes = [0] * (1 + max((meta.storage for meta in metas), default=-1))
    for meta in metas:
        reach = (meta.offset + extent(meta.shape, meta.stride)) * ITEMSIZE[meta.dtype]
        nbytes[meta.storage] = max(nbytes[meta.storage], reach)
    return nbytes


@contextmanager
def nothing_launched() -> Iterator[None]:
    """Meanwhile Triton's functions compile and do not run, and its autotuners compile each config and choose the first."""
    jit: Any = sys.modules.get("triton.runtime.jit")
    if jit is None:
        yield
        return
    run = jit.JITFunction.run

    def compile_only(function: Any, *args: Any, **options: Any) -> Any:
        return run(function, *args, **{**options, "warmup": True})

    with patch.object(jit.JITFunction, "run", compile_only), autotuner.first_chosen():
        yield
