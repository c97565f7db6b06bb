"""One worker process as its parent sees it: start, call, and a clear word when it dies."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_cgins.errors import ProtocolError, ServiceError, WorkerCrashed, WorkerTimeout
from pytest_cgins.execute.buffers import Buffer
from pytest_cgins.execute.exits import describe_exit
from pytest_cgins.execute.output import OutputTail
from pytest_cgins.execute.protocol import START, Channel

logger = logging.getLogger(__name__)
START_TIMEOUT_S = 180.0
"""Importing torch from a cold network file system takes minutes; a kernel's limit does not cover it."""

_EXIT_WAIT_S = 2.0
_KILL_WAIT_S = 10.0
# sys.path of the worker: ours last, so that it shadows nothing, and never the current directory, where a
# user's own `trace.py` would be found before the standard library's.
_BOOT = (
    "import sys; sys.path[:1] == [''] and sys.path.pop(0); sys.path.append({root!r}); "
    "from pytest_cgins.execute.worker import main; main({fd}, parent={parent}, death_signal={death_signal})"
)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a service answered."""

    result: Any
    """Plain JSON values."""
    buffers: tuple[Buffer, ...]
    """In the service's order; the caller closes them."""
    output: str
    """Tail of what the process printed since the last answer."""


class WorkerProcess:
    """A running worker. Not thread-safe: one request at a time.

    It is killed with its process group; a process that leaves the group (setsid) is a sandbox's business.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], channel: Channel, output: OutputTail, name: str
    ) -> None:
        self.name = name
        self._process = process
        self._channel = channel
        self._output = output
        self._owner = os.getpid()
        self._start_nonce = ""
        self._ended = False

    @classmethod
    def start(
        cls,
        service: str,
        *,
        name: str,
        env: Mapping[str, str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> WorkerProcess:
        """Start a process that serves `service` ("module:Class"), and do not wait for its imports.

        Args:
            service: what to serve.
            name: for messages.
            env: variables to add to the inherited environment.
            settings: JSON values for the service's constructor.
        """
        ours, theirs = socket.socketpair()
        read_fd, write_fd = os.pipe()
        boot = _BOOT.format(
            root=str(Path(__file__).resolve().parents[2]),
            fd=theirs.fileno(),
            parent=os.getpid(),
            death_signal=threading.current_thread() is threading.main_thread(),
        )
        try:
            process = subprocess.Popen(
                [sys.executable, "-u", "-c", boot],
                stdin=subprocess.DEVNULL,
                stdout=write_fd,
                stderr=write_fd,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            os.close(read_fd)
            raise
        finally:
            theirs.close()
            os.close(write_fd)
        output = OutputTail(read_fd)
        channel = Channel(
            ours, side_fd=read_fd, on_side=output.drain, still_there=lambda: _is_running(process)
        )
        worker = cls(process, channel, output, name)
        logger.debug("%s: process %d started for %s", name, process.pid, service)
        params = {"service": service, "settings": dict(settings or {})}
        with suppress(EOFError):  # it is dead already: the first call will say how
            worker._start_nonce = worker._request(START, params, (), time.monotonic() + 10)
        return worker

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its process group."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can still be called."""
        return not self._ended and _is_running(self._process)

    def call(
        self,
        method: str,
        params: Mapping[str, Any],
        buffers: Sequence[Buffer] = (),
        *,
        timeout_s: float,
    ) -> Reply:
        """Call a method of the service and wait for its answer.

        `buffers` stay the caller's. The start of the process has a limit of its own, beside `timeout_s`.

        Raises:
            ServiceError: the service raised; the process lives on, unless it said that it must not.
            WorkerTimeout: no answer within `timeout_s`; the process was killed.
            WorkerCrashed: it ended, or cut its connection.
            ProtocolError: it answered something that is not an answer; it was killed.
        """
        try:
            if self._start_nonce:
                nonce, self._start_nonce = self._start_nonce, ""
                with self._limited("start", START_TIMEOUT_S) as deadline:
                    self._answer(nonce, "start", deadline)
            with self._limited(method, timeout_s) as deadline:
                nonce = self._request(method, params, buffers, deadline)
                return self._answer(nonce, method, deadline)
        except ServiceError:
            raise
        except EOFError:
            raise self._crashed(method) from None
        except ProtocolError as error:
            error.output = self._end(grace_s=0)
            raise
        except BaseException:
            # The answer to this request may still come: nobody must read it as the next one's.
            self._end(grace_s=0)
            raise

    def close(self) -> None:
        """End the process and its whole group; a second time does nothing."""
        self._end(grace_s=_EXIT_WAIT_S)

    def _request(
        self, method: str, params: Mapping[str, Any], buffers: Sequence[Buffer], deadline: float
    ) -> str:
        nonce = secrets.token_hex(16)
        # Names and sizes only: what travels may be a model's data.
        logger.debug("%s: <- %s(%s)%s", self.name, method, ", ".join(params), _sizes(buffers))
        self._channel.send({"nonce": nonce, "method": method, "params": params}, buffers, deadline=deadline)
        return nonce

    @contextmanager
    def _limited(self, method: str, limit_s: float) -> Iterator[float]:
        """Give the deadline; past it, kill the process and raise WorkerTimeout."""
        try:
            yield time.monotonic() + limit_s
        except TimeoutError:
            raise WorkerTimeout(
                f"the {self.name} worker did not answer {method!r} within {limit_s:g} s and was killed",
                remedy=_late(self.name, method),
                output=self._end(grace_s=0),
            ) from None

    def _answer(self, nonce: str, method: str, deadline: float) -> Reply:
        started = time.monotonic()
        answer, buffers = self._channel.receive(deadline=deadline)
        waited_ms = 1000 * (time.monotonic() - started)
        if answer.get("nonce") != nonce or not _is_answer(answer):
            raise ProtocolError(
                f"the {self.name} worker answered {method!r} with something that is no answer to it",
                remedy="code under test must not write to pytest-cgins' own connection",
            )
        fatal, error = answer.get("fatal"), answer.get("error")
        output = self._output.take()
        what = "result" if error is None else f"error {str(error.get('kind', ''))[:100]!r}"
        logger.debug("%s: -> %s: %s%s after %.1f ms", self.name, method, what, _sizes(buffers), waited_ms)
        if fatal:
            output += self._end(grace_s=0)
        if error is not None:
            raise _service_error(self.name, error, output)
        return Reply(answer["result"], tuple(buffers), output)

    def _crashed(self, method: str) -> WorkerCrashed:
        ended = _wait_until_exited(self._process, _EXIT_WAIT_S)
        output = self._end(grace_s=0)
        returncode = self._process.returncode if ended else None
        words, remedy = describe_exit(returncode)
        return WorkerCrashed(
            f"the {self.name} worker {words}, during {method!r}",
            remedy=remedy,
            output=output,
            returncode=returncode,
        )

    def _end(self, *, grace_s: float) -> str:
        """Close the connection, kill what is left after `grace_s`, and give the unread output."""
        if self._owner != os.getpid():  # a fork of the parent: the worker is not its own
            return ""
        if not self._ended:
            self._ended = True
            self._channel.close()
            _wait_until_exited(self._process, grace_s)
            # Before the process is reaped, so that its group id cannot have been given away.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            # A process that hangs in a driver's system call does not even die of SIGKILL.
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=_KILL_WAIT_S)
            logger.debug("%s: process %d ended: %s", self.name, self._process.pid, self._process.returncode)
        return self._output.close()


def _late(name: str, method: str) -> str:
    """What to do about an answer that did not come in time: only some workers run a kernel."""
    if method == "start":
        return "its imports took that long: look at the machine's load and file system"
    if name == "reference":
        return (
            "it runs torch and no kernel: look at the machine's load, or gate on smaller traces; "
            "--cgins-timeout limits kernels only"
        )
    return "look for a loop or a deadlock in the kernel, or raise the time limit with --cgins-timeout"


def _sizes(buffers: Sequence[Buffer]) -> str:
    """`, 2 buffers of 1024 + 64 bytes`; "" where there are none."""
    if not buffers:
        return ""
    shown = " + ".join(str(buffer.nbytes) for buffer in buffers[:8])
    more = " + ..." if len(buffers) > 8 else ""
    return f", {len(buffers)} buffers of {shown}{more} bytes"


def _is_answer(message: dict[str, Any]) -> bool:
    """Whether it holds a result or an error, and not both."""
    return ("result" in message) != isinstance(message.get("error"), dict)


def _service_error(name: str, error: dict[str, Any], output: str) -> ServiceError:
    kind, message, remedy, trace = (str(error.get(key, "")) for key in ("kind", "message", "remedy", "trace"))
    return ServiceError(
        f"{kind} in the {name} worker: {message}",
        remedy=remedy,
        kind=kind,
        text=message,
        trace=trace + output,
    )


def _is_running(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has not ended; does not reap it."""
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False


def _wait_until_exited(process: subprocess.Popen[bytes], limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while _is_running(process):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.005)
    return True
