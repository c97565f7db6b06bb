"""NVRTC where it may run: in this process, or, where compilers are fenced in, in a process in the sandbox."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_cgins.building.compilers import running
from pytest_cgins.building.compilers.process import LOG_LIMIT_NBYTES, run_stages
from pytest_cgins.building.nvrtc import library
from pytest_cgins.building.nvrtc.child import HEADER
from pytest_cgins.building.nvrtc.library import NvrtcResult
from pytest_cgins.core.text import counted

RESULT_LIMIT_NBYTES = 1 << 30
# By the folder of this package: what else there is imports more than the rest of the start takes.
_BOOT = (
    f"import sys; sys.path.append({str(Path(__file__).parents[1])!r}); from nvrtc.child import main; main()"
)
# The file is the child's, which may write any names and numbers: long runs of digits are not parameter codes.
_LOWERED = re.compile(r"(?!.*\d{20})[\w.$@]+", re.ASCII)


def compile(  # noqa: A001 - the field's word
    text: str,
    file: str,
    arch: str,
    options: Sequence[str] = (),
    *,
    expressions: Sequence[str] = (),
    deadline: float,
    folder: Path,
    name: str,
) -> NvrtcResult:
    """Compile a source for one architecture.

    Args:
        text: the source.
        file: what messages call it; quoted includes are looked up in its folder too.
        arch: `sm_90a`, or `compute_80` for PTX alone.
        options: as of `library.compile`; so are `expressions`.
        expressions: kernels or variables to instantiate.
        deadline: time of `time.monotonic()` at which to give up.
        folder: of the build; what a process of its own reads and writes lies in a folder below.
        name: leads log messages.

    Raises:
        InfrastructureError: there is no NVRTC, or the run ended.
        SourceError: it does not know the architecture.
    """
    current = running.current()
    if current.fence is None:
        with current.in_process():
            return library.compile(text, file, arch, options, expressions=expressions, deadline=deadline)
    library.check_arch(arch)
    started = time.monotonic()
    path = folder / f"nvrtc-{arch}"
    path.mkdir()
    names, builtins = library.names_to_load()
    asked = {
        "names": names, "builtins": builtins, "text": text, "file": file,
        "options": [f"--gpu-architecture={arch}", *options], "expressions": list(expressions),
    }  # fmt: skip
    request, result = path / "request.json", path / "result"
    request.write_text(json.dumps(asked), encoding="utf-8")
    command = [sys.executable, "-I", "-S", "-c", _BOOT, str(request), str(result)]
    outcome = run_stages([[command]], path, name, deadline)
    seconds = time.monotonic() - started
    if outcome.status != 0:
        return _without_result(outcome.status, outcome.log, seconds)
    try:
        return _read(result, len(expressions), seconds)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return _without_result(1, f"{outcome.log}\nNVRTC left no result that can be read: {error}", seconds)


def _without_result(status: int | None, log: str, seconds: float) -> NvrtcResult:
    number = 0 if status is None else -status if status < 0 else max(0, status - 128)
    if number in set(signal.Signals):
        log = f"{log.rstrip()}\nNVRTC error: it was ended by {signal.Signals(number).name}".lstrip()
    return NvrtcResult(
        cubin=None, ptx=None, log=log, seconds=seconds, lowered=(), timed_out=status is None, status=status or 0
    )  # fmt: skip


def _read(file: Path, expressions: int, seconds: float) -> NvrtcResult:
    """The result that an untrusted process has left.

    Raises:
        ValueError, KeyError, TypeError, RecursionError: it is not one.
        OSError: it cannot be read.
    """
    content = _content(file)
    (length,) = HEADER.unpack_from(content) if len(content) >= HEADER.size else (len(content),)
    begin = HEADER.size + length
    if begin > len(content):
        raise ValueError(f"{counted(len(content), 'byte')}, {begin} told")
    told: dict[str, Any] = json.loads(content[HEADER.size : begin])
    log, lowered, ncubin, nptx = told["log"], told["lowered"], told["cubin"], told["ptx"]
    if type(log) is not str or type(lowered) is not list or not type(ncubin) is type(nptx) is int:
        raise TypeError("fields of other types")
    if min(ncubin, nptx) < 0 or begin + ncubin + nptx != len(content):
        raise ValueError(
            f"{counted(len(content), 'byte does', 'bytes do')} not hold {ncubin} and {counted(nptx, 'byte')} of code"
        )
    if any(type(one) is not str or not _LOWERED.fullmatch(one) for one in lowered):
        raise ValueError("names that no compiler makes")
    if len(lowered) not in (0, expressions):
        raise ValueError(f"{counted(len(lowered), 'name')} for {counted(expressions, 'expression')}")
    return NvrtcResult(
        cubin=content[begin : begin + ncubin] or None,
        ptx=content[begin + ncubin :] or None,
        log=log[:LOG_LIMIT_NBYTES],
        seconds=seconds,
        lowered=tuple(lowered),
    )


def _content(file: Path) -> bytes:
    """The bytes of a file that is no link to another, nor a pipe."""
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
        about = os.fstat(opened.fileno())
        if not stat.S_ISREG(about.st_mode) or about.st_size > RESULT_LIMIT_NBYTES:
            raise ValueError("no file, or too large a one")
        return opened.read(RESULT_LIMIT_NBYTES)
