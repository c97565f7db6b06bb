"""One worker process as its parent sees it: start, call, and a clear word when it dies."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.errors import (
    ProtocolError,
    ServiceError,
    WorkerCrashed,
    WorkerError,
    WorkerExceeded,
    WorkerTimeout,
)
from pytest_cgins.core.text import counted
from pytest_cgins.core.verdict import Reason
from pytest_cgins.run.environment import worker_environment
from pytest_cgins.run.exits import STACK_SIGNAL, describe_exit, hung_in, without_stack
from pytest_cgins.run.forking import OWN, Interpreter
from pytest_cgins.run.launch import Ends, Launch, Started, Wrap, wait_until_exited
from pytest_cgins.run.limits import Limits, memory_kills
from pytest_cgins.run.output import Output, Printed
from pytest_cgins.run.process_tree import ProcessTree
from pytest_cgins.run.protocol import DONE, DONE_LIMIT_BYTES, START, Channel
from pytest_cgins.run.request_clock import RequestClock, RequestTime, inner_pid
from pytest_cgins.run.sandbox.sandbox import Sandbox
from pytest_cgins.run.watch import Exceeded, Watch

logger = logging.getLogger(__name__)
START_TIMEOUT_S = 180.0
"""Importing torch from a cold network file system takes minutes; a kernel's limit does not cover it."""

_EXIT_WAIT_S = 2.0
_KILL_WAIT_S = 10.0
_EXTENSIONS = 9
"""Of the limit of a request, for who is found compiling at its end."""
_STACK_WAIT_S = 0.2
"""In which a signal's handler writes a Python stack into a pipe."""
_LINGER_S = 0.5  # in which a worker whose connection was closed finds that out


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """What a service answered."""

    result: T
    """Plain JSON values from a worker; afterwards a message of `verify.messages`."""
    buffers: tuple[Buffer, ...]
    """Buffers in the service's order; the caller closes them."""
    printed: Printed = field(default_factory=Printed)
    """What the process printed since the last answer, the ends of it."""
    took: RequestTime | None = None
    """How long the answer took; None of a service that is called in this process."""

    def close(self) -> None:
        """Close the buffers."""
        for buffer in self.buffers:
            buffer.close()

    @property
    def output(self) -> str:
        """What it printed as one text: stdout, and below a line `stderr:` what went there."""
        return self.printed.text


class WorkerProcess:
    """A running worker. Not thread-safe: one request at a time.

    It is killed with all its descendants, also those that left its session (see `process_tree`).
    """

    def __init__(
        self,
        launch: Launch,
        connection: socket.socket,
        output: Output,
        *,
        name: str,
        mark: str,
        first: Mapping[str, Any],
        limits: Limits,
        wrapped: bool,
        start_timeout_s: float,
    ) -> None:
        self.name = name
        self._start_timeout_s = start_timeout_s
        self._launch = launch
        self._process: Started | None = None
        self._output = output
        self._mark = mark
        self._limits = limits
        self._first = first
        self._channel = Channel(connection, sides=output.drains, still_there=self._is_there)
        self._wrapped = wrapped
        self._owner = os.getpid()
        self._memory_kills = memory_kills()
        self._starting = True
        self._served = 0  # the process that serves, once it is started
        self._extensions = 0
        self._printed = Printed()
        self._ended = False

    @classmethod
    def start(
        cls,
        service: str,
        *,
        name: str,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        wrap: Wrap | None = None,
        sandbox: Sandbox | None = None,
        shielded: bool = False,
        fork: bool = True,
        imports: str = "",
        interpreter: Interpreter = OWN,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> WorkerProcess:
        """Start a process that serves `service` ("module:Class"), and do not wait for its imports.

        Of the inherited environment, to which `env` is added, secrets are left out. Into a `shielded` process no other of this user
        may look; it sees to it that this one goes on. With `fork` it may be forked by a process that has `imports` behind it, by
        default the module of the service, see `forkserver`; what is put around it, and what times, is started as a program.
        """
        mark = secrets.token_hex(16)
        ours, theirs = socket.socketpair()
        (stdout, stdout_end), (stderr, stderr_end) = os.pipe(), os.pipe()
        ends = Ends(connection=theirs, stdout=stdout_end, stderr=stderr_end)
        output = Output(stdout, stderr)
        try:
            launch = Launch(
                ends,
                mark=mark,
                environment=worker_environment(mark, env),
                wrap=wrap,
                sandbox=sandbox,
                shielded=shielded,
                fork=(imports or service.partition(":")[0]) if fork else "",
                interpreter=interpreter,
            )
            worker = cls(
                launch,
                ours,
                output,
                name=name,
                mark=mark,
                first={"service": service, "keep_running": os.getpid() if shielded else 0},
                limits=limits or Limits(),
                wrapped=wrap is not None or sandbox is not None,
                start_timeout_s=start_timeout_s,
            )
            if launch.is_ready:
                worker._launched()
        except BaseException:
            ends.close()
            ours.close()
            output.close()
            raise
        return worker

    def _launched(self, deadline: float | None = None) -> Started:
        """The process; started now if it is not yet, and told what to serve.

        Raises:
            TimeoutError: past the deadline.
        """
        if self._process is None:
            self._process = process = self._launch.start(deadline)
            self._tree = ProcessTree(process.pid, self._mark)
            self._watch = Watch(self._tree, self._output, self._limits, process.is_running)
            logger.debug("%s: process %d started for %s", self.name, process.pid, self._first["service"])
            with suppress(EOFError, Exceeded):  # the first call will say how it ended
                self._request(START, self._first, (), time.monotonic() + 10)
        return self._process

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its process group. Waits for a process that is about to be forked."""
        if self._ended and self._process is None:
            return 0
        return self._launched().pid

    @property
    def alive(self) -> bool:
        """Whether it can still be called: it runs, and has written nothing that nobody asked for."""
        if self._ended or (self._process is not None and not self._process.is_running()):
            return False
        return self._starting or not self._channel.has_input

    def call(
        self,
        method: str,
        params: Mapping[str, Any],
        buffers: Sequence[Buffer] = (),
        *,
        timeout_s: float,
        extends: bool = True,
    ) -> Reply[Any]:
        """Call a method of the service and wait for its answer.

        `buffers` stay the caller's. The start of the process has a limit of its own, beside `timeout_s`.

        Raises:
            ServiceError: the service raised; the process lives on, unless it said that it must not.
            WorkerTimeout: no answer within `timeout_s`; the process was killed.
            WorkerExceeded: it took more of the machine than it may, and was killed.
            WorkerCrashed: it ended, or cut its connection.
            ProtocolError: it answered something that is not an answer; it was killed.
        """
        try:
            self.wait_until_started()
            with self._limited(method, timeout_s) as deadline:
                took = self._clock.start()
                self._request(method, params, buffers, deadline)
                ends = self._await_answer(deadline, timeout_s if extends else 0.0)
                return replace(self._answer(method, ends), took=took())
        except ServiceError:
            raise
        except EOFError:
            raise self._crashed(method) from None
        except ProtocolError as error:
            error.output = self._end(grace_s=0).text
            raise
        except BaseException:
            # The answer to this request may still come: nobody must read it as the next one's.
            self._end(grace_s=0)
            raise

    def wait_until_started(self) -> None:
        """Wait for its imports; errors are those of `call`."""
        if self._starting:
            self._starting = False
            self._started()

    def stopped(self) -> AbstractContextManager[None]:
        """Keep it and its descendants from running meanwhile; nothing may be asked of it."""
        return self._tree.stopped()

    def kill(self) -> None:
        """Kill the process while another thread waits for its answer, which finds it dead, and closes this."""
        process = self._process
        if process is not None and not self._ended and self._owner == os.getpid():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process and its whole group; a second time does nothing."""
        # Who still imports has nothing to write, and looks up only when that is done.
        self._end(grace_s=0 if self._starting else _EXIT_WAIT_S)

    def _started(self) -> None:
        """Wait for the service to be made. No kernel has run as yet: whatever goes wrong is not its doing."""
        try:
            with self._limited("start", self._start_timeout_s) as deadline:
                self._launched(deadline)
                told = self._answer("start", deadline).result
            self._tree.look()
            inside = [pid for pid in self._tree.pids() if inner_pid(pid) == told]
            self._served = next(iter(inside), self.pid)
            self._clock = RequestClock(self._served, self._tree.pids)
        except EOFError:
            crash = self._crashed("start")
            crash.fault = Reason.WORKER_LOST.value
            raise crash from None
        except WorkerError as error:
            error.fault = Reason.WORKER_LOST.value
            raise

    def _is_there(self) -> bool:
        return self._watch()

    def _request(
        self, method: str, params: Mapping[str, Any], buffers: Sequence[Buffer], deadline: float
    ) -> None:
        # Names and sizes only: what travels may be a model's data.
        logger.debug("%s: <- %s(%s)%s", self.name, method, ", ".join(params), _sizes(buffers))
        self._channel.send({"method": method, "params": params}, buffers, deadline=deadline)

    @contextmanager
    def _limited(self, method: str, limit_s: float) -> Iterator[float]:
        """Give the deadline; past it, or past another limit, kill the process and raise."""
        self._extensions = 0
        try:
            yield time.monotonic() + limit_s
        except TimeoutError:
            output = self._end(grace_s=0).text
            place, remedy = hung_in(output)
            waited_s = limit_s * (1 + self._extensions)
            raise WorkerTimeout(
                f"the {self.name} worker did not answer {method!r} within {waited_s:g} s and was killed{place}",
                remedy=remedy or _late(self.name, method),
                output=output,
                fault=Reason.TIMED_OUT.value,
            ) from None
        except Exceeded as excess:
            raise WorkerExceeded(
                f"the {self.name} worker {excess}, during {method!r}, and was killed",
                remedy=excess.remedy,
                output=self._end(grace_s=0).text,
                fault=excess.reason.value,
            ) from None

    def _await_answer(self, deadline: float, limit_s: float) -> float:
        """Wait until it answers; the deadline then: who is found compiling has its limit again, since each size is compiled anew; 0 extends nothing."""
        while True:
            try:
                self._channel.await_input(deadline)
                return deadline
            except TimeoutError:
                self._tell_where()
                printed = self._output.take()
                if not limit_s or self._extensions == _EXTENSIONS or not hung_in(printed.stderr)[1]:
                    self._printed += printed
                    raise
                self._printed += replace(printed, stderr=without_stack(printed.stderr))
                self._extensions += 1
                deadline = time.monotonic() + limit_s

    def _tell_where(self) -> None:
        """Have it print where it hangs; who does not know the signal dies of it."""
        if self._served:
            with suppress(ProcessLookupError):
                os.kill(self._served, STACK_SIGNAL)
                time.sleep(_STACK_WAIT_S)

    def _answer(self, method: str, deadline: float) -> Reply[Any]:
        started = time.monotonic()
        try:
            answer, buffers = self._challenged(deadline)
        except ProtocolError as forgery:
            raise ProtocolError(
                f"the {self.name} worker answered {method!r} with something that is no answer to it: {forgery.what}",
                remedy="code under test must not write to pytest-cgins' own connection",
                fault=Reason.FORGED_ANSWER.value,
            ) from forgery
        waited_ms = 1000 * (time.monotonic() - started)
        fatal, error = answer.get("fatal"), answer.get("error")
        printed, self._printed = self._printed + self._output.take(), Printed()
        what = "result" if error is None else f"error {str(error.get('kind', ''))[:100]!r}"
        logger.debug("%s: -> %s: %s%s after %.1f ms", self.name, method, what, _sizes(buffers), waited_ms)
        if fatal:
            printed += self._end(grace_s=0)
        if error is not None:
            raise service_error(self.name, error, printed.text)
        return Reply(answer["result"], tuple(buffers), printed)

    def _challenged(self, deadline: float) -> tuple[dict[str, Any], list[Buffer]]:
        """Wait until the service is done, then ask for its answer; see `protocol` for why."""
        done, strays = self._channel.receive(deadline=deadline, limit_bytes=DONE_LIMIT_BYTES)
        if done == DONE and not strays and self._channel.at_end:
            raise EOFError("it ended before it was asked for its answer")
        # Whatever lies behind `done` was written by somebody who could not know the nonce.
        if done != DONE or strays or self._channel.has_input:
            raise ProtocolError("it came before it was asked for")
        nonce = secrets.token_hex(16)
        self._channel.send({"nonce": nonce}, deadline=deadline)
        answer, buffers = self._channel.receive(deadline=deadline)
        if answer.get("nonce") != nonce or not _is_answer(answer):
            raise ProtocolError("it does not answer the question")
        return answer, buffers

    def _crashed(self, method: str) -> WorkerCrashed:
        # Its connection is cut. If it is not about to end, it hardly ever will; of a wrapper nobody knows.
        ending = self._wrapped or self._tree.is_exiting()
        process = self._launched()
        ended = wait_until_exited(process, _EXIT_WAIT_S if ending else _LINGER_S)
        output = self._end(grace_s=0).text
        returncode = process.returncode if ended else None
        memory_ran_out = memory_kills() > self._memory_kills
        end = describe_exit(returncode, wrapped=self._wrapped, memory_ran_out=memory_ran_out)
        return WorkerCrashed(
            f"the {self.name} worker {end.words}, during {method!r}",
            remedy=end.remedy,
            output=output,
            fault=end.reason.value,
            returncode=returncode,
        )

    def _end(self, *, grace_s: float) -> Printed:
        """Close the connection, kill what is left after `grace_s`, and give the unread output."""
        if self._owner != os.getpid():  # a fork of the parent: the worker is not its own
            return Printed()
        if not self._ended:
            self._ended = True
            self._launch.close()
            if self._process is None:
                self._channel.close()
            else:
                self._end_process(self._process, grace_s)
        return self._printed + self._output.close()

    def _end_process(self, process: Started, grace_s: float) -> None:
        # While it lives its orphans are still its children; afterwards they are known.
        self._tree.look()
        self._channel.close()
        wait_until_exited(process, grace_s)
        # Before the process is reaped, so that its id cannot have been given away.
        self._tree.kill()
        # A process that hangs in a driver's system call does not even die of SIGKILL.
        process.wait(_KILL_WAIT_S)
        logger.debug("%s: process %d ended: %s", self.name, process.pid, process.returncode)


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
    return f", {counted(len(buffers), 'buffer')} of {shown}{more} {'byte' if shown == '1' and not more else 'bytes'}"


def _is_answer(message: dict[str, Any]) -> bool:
    """Whether it holds a result or an error, and not both."""
    if "error" in message:
        return "result" not in message and isinstance(message["error"], dict)
    return "result" in message


def service_error(name: str, error: dict[str, Any], output: str = "") -> ServiceError:
    """The exception for what `worker.describe` said of one in a worker."""
    kind, message, remedy, trace = (str(error.get(key, "")) for key in ("kind", "message", "remedy", "trace"))
    return ServiceError(
        f"{kind} in the {name} worker: {message}",
        remedy=remedy,
        kind=kind,
        text=message,
        trace=trace + output,
    )
