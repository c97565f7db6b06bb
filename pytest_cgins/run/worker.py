"""The child: serves one service object, a request at a time, until its parent closes the connection.

Run as `python -c 'from pytest_cgins.run.worker import main; main(…)'` by `process.WorkerProcess`.
A service is a plain class, made without arguments, whose public methods take `(params, buffers)` and
return `(result, buffers)`. Whatever a method raises is an answer too. A service whose process must not be
used again (a CUDA error is sticky) sets its attribute `fatal`; its `rest`, if it has one, is called
after each answer. How an answer is given is in `protocol`.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import fcntl
import gc
import importlib
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_cgins.building.loading.exceptions import (
    MAXIMUM_TEXT,
    bounded,
    cut,
    is_stuck,
    kind_of,
    printable,
    told,
)
from pytest_cgins.core import errors
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.errors import CginsError, ProtocolError
from pytest_cgins.run.environment import shield
from pytest_cgins.run.exits import STACK_SIGNAL
from pytest_cgins.run.protocol import CONNECTION_CUT, DONE, START, Channel
from pytest_cgins.run.sandbox.init import enclose_in_scratch

ENCLOSE_VARIABLE = "CGINS_ENCLOSE"
"""Set for a worker that shares its sandbox with a tool: it fences itself in further before it serves."""

_OWN = tuple(var for var in vars(errors).values() if isinstance(var, type) and issubclass(var, CginsError))
_LOWEST_FD = 200
_WATCH_PERIOD_MS = 1000
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LINE_BUFFERED = 1  # _IOLBF


def main(fd: int, *, parent: int, death_signal: bool, shielded: bool) -> None:
    """Serve on the inherited socket `fd`. Does not return.

    Args:
        fd: the socket; moved out of the way of code that closes or reuses low descriptors.
        parent: process id of the parent, to notice that it was gone before we began to look; 0 if another
            program was put between.
        death_signal: ask the kernel for SIGKILL when the parent's *thread* that made us ends; right only
            if that is its main thread.
        shielded: let no other process of this user look into this one.
    """
    connection = _move_high(fd)
    _read_nothing_more()
    _die_with_parent(parent, connection, death_signal)
    _adopt_orphans()
    if shielded:
        shield()
    if os.environ.get(ENCLOSE_VARIABLE):
        enclose_in_scratch()
    _make_output_immediate()
    try:
        _serve(Channel(connection))
    except EOFError:
        os._exit(0)
    except _ConnectionCut:
        os._exit(CONNECTION_CUT)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        os._exit(70)


class _ConnectionCut(Exception):
    """Code under test closed the connection."""


def _serve(channel: Channel) -> None:
    service: Any = None
    while True:
        request, buffers = channel.receive()
        answer: dict[str, Any] = {}
        results: list[Buffer] = []
        try:
            if request["method"] == START:
                with _imports_are_kept():
                    service = make_service(request["params"]["service"])
                if pid := request["params"]["keep_running"]:
                    keep_running(pid)
                answer["result"] = os.getpid()
            else:
                answer["result"], results = method_of(service, request["method"])(request["params"], buffers)
        except BaseException as error:  # noqa: BLE001 - whatever code under test raises is an answer
            answer["error"] = describe(error)
        answer["fatal"] = service is None or bool(getattr(service, "fatal", False)) or is_stuck()
        _flush()
        try:
            _answer(channel, answer, results)
        except EOFError as error:
            raise _ConnectionCut from error
        for buffer in (*buffers, *results):
            buffer.close()
        rest = getattr(service, "rest", None)
        if rest is not None and not answer["fatal"]:
            with contextlib.suppress(Exception):  # the next request tells what is wrong
                rest()


def _answer(channel: Channel, answer: dict[str, Any], results: list[Buffer]) -> None:
    channel.send(DONE)
    challenge, _ = channel.receive()
    try:
        channel.send({**challenge, **answer}, results)
    except ProtocolError as error:
        channel.send({**challenge, "error": describe(error), "fatal": answer["fatal"]})


@contextlib.contextmanager
def _imports_are_kept() -> Iterator[None]:
    """Python's collector leaves alone what is made meanwhile: torch's modules stay, and to go through them takes long."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def make_service(service: str) -> Any:
    """The object of a service, "module:Class"."""
    module, _, name = service.partition(":")
    return getattr(importlib.import_module(module), name)()


def method_of(service: Any, name: str) -> Any:
    """A public method of a service.

    Raises:
        ProtocolError: it has none of that name.
    """
    method = None if name.startswith("_") else getattr(type(service), name, None)
    if not callable(method):
        raise ProtocolError(f"{type(service).__name__} has no method {name!r}")
    return method.__get__(service)


def describe(error: BaseException) -> dict[str, Any]:
    """An exception as JSON: `kind` (class name), `message`, `remedy`, `trace` (its traceback's end)."""
    if any(type(error) is one for one in _OWN):  # their texts are there already
        own: Any = error
        message, remedy = cut(own.what), cut(own.remedy)
    else:
        message, remedy = told(error), ""
    trace = bounded(lambda: _trace(error), lambda _: _frames(error))
    return {"kind": kind_of(error), "message": message, "remedy": remedy, "trace": trace}


def _trace(error: BaseException) -> str:
    if any(len(str(one)) > MAXIMUM_TEXT for one in _chain(error)):
        return _frames(error)  # with the texts they would be written down several times
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return printable("".join(lines)[-MAXIMUM_TEXT:])


def _frames(error: BaseException) -> str:
    lines = traceback.format_tb(error.__traceback__)
    return printable("".join(["Traceback (most recent call last):\n", *lines[-100:]])[-MAXIMUM_TEXT:])


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and what it came from, as far as a traceback is likely to be read."""
    for _ in range(16):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _flush() -> None:
    """Bring out all that was printed before the answer, from Python's buffers and from C's."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()
    ctypes.CDLL(None).fflush(None)


def _move_high(fd: int) -> socket.socket:
    connection = socket.socket(fileno=fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _LOWEST_FD))
    os.close(fd)
    return connection


def _read_nothing_more() -> None:
    """The standard input, from which our own program came, is that of a program without one."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def _make_output_immediate() -> None:
    """What a kernel prints before it crashes must be seen: no full buffering on pipes."""
    faulthandler.enable()
    faulthandler.register(STACK_SIGNAL, all_threads=False)
    libc = ctypes.CDLL(None)
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, _LINE_BUFFERED, ctypes.c_size_t(0))


def _die_with_parent(parent: int, connection: socket.socket, death_signal: bool) -> None:
    if death_signal:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if parent and os.getppid() != parent:
            os._exit(0)
    if not (death_signal and parent):
        threading.Thread(target=_watch, args=(connection.fileno(),), name="cgins-parent", daemon=True).start()


def _adopt_orphans(value: int = 1) -> None:
    """Become the parent of descendants that lose theirs, so that daemons stay where they are found."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, value, 0, 0, 0)


def become_ordinary() -> None:
    """Take back what a kernel could tell a worker from another program by."""
    _adopt_orphans(0)
    faulthandler.disable()
    faulthandler.unregister(STACK_SIGNAL)
    gc.unfreeze()


def _watch(fd: int) -> None:
    """End the process once the other side of the socket is closed, also in the middle of a request.

    In rounds: while a poll waits, the other side does not learn that code under test has closed this one.
    """
    watched = os.fstat(fd).st_ino
    poll = select.poll()
    poll.register(fd, 0)  # POLLHUP is always reported
    with contextlib.suppress(OSError):
        while True:
            hung_up = poll.poll(_WATCH_PERIOD_MS)
            if os.fstat(fd).st_ino != watched:
                return
            if hung_up:
                os._exit(0)


# ---- pytest's own process


LOOK_S = 1.0
LOOKS = 4
"""Looks in a row that must find the process stopped before it is continued: a debugger may stop it for a moment."""


def keep_running(pid: int, *, look_s: float = LOOK_S) -> threading.Thread:
    """Go on with pytest's process, until it ends, where a kernel has stopped it (SIGSTOP): nothing else would.

    Run by a trusted worker, in a thread. Where a shell has taken the terminal back, as after Ctrl-Z, a person sees it and
    decides. A kernel that stops the trusted worker as well is not met: outside of a sandbox it may do all that its user may.
    """
    thread = threading.Thread(target=_look_after, args=(pid, look_s), name="cgins-resume", daemon=True)
    thread.start()
    return thread


def _look_after(pid: int, look_s: float) -> None:
    seen = 0
    while (stopped := _is_stopped(pid)) is not None:
        seen = seen + 1 if stopped else 0
        if seen >= LOOKS:
            seen = 0
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)
        time.sleep(look_s)


def _is_stopped(pid: int) -> bool | None:
    """Whether it is stopped, and nobody at a terminal sees that; None if there is no such process."""
    try:
        # Behind the name, which may hold anything: state, ppid, pgrp, session, tty_nr, tpgid.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        state, group, foreground = fields[0], int(fields[2]), int(fields[5])
    except (OSError, ValueError, IndexError):
        return None
    return state == "T" and foreground in (-1, group)
