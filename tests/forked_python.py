"""Runs Python as `subprocess.run` does, in a fork of a process that has imported what such a run imports.

Most of what a run of pytest with `--cgins` costs is imports: its own, and torch in the server that forks its workers. Here
both are done once. The run is a process of its own all the same: other folder, variables and descriptors, its own exit code.
What times is forked as well. That this is not so elsewhere is for tests that start a program, as runs do whose interpreter
would start with other variables.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import re
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

CGINS = ("-c", "import sys; from pytest_cgins.app.cli import main; sys.exit(main())")
"""The words before those of a command of `cgins`."""
GATE = (
    "pytest_cgins.app.session.run", "pytest_cgins.app.session.livelog", "pytest_cgins.app.cli",
    "pytest_cgins.report.html", "pytest_cgins.report.junit", "pytest_cgins.report.markdown",
    "xdist.dsession", "pytest_benchmark.plugin",
)  # fmt: skip
TORCH = ("torch", "pytest_cgins.app.cli")
AT_START = ("PYTHON", "LD_", "LC_", "LANG", "OMP_", "OPENBLAS_", "MKL_")
"""Variables that are read when the interpreter or a library starts, which a fork is too late for."""
OF_RUN = (
    "BITBUCKET_", "BRANCH_", "CHANGE_", "CI_", "COLUMNS", "CXX", "GIT_CONFIG_", "LINES", "OLDPWD", "PWD", "SHLVL", "TERM", "_"
)  # fmt: skip
"""Variables that no worker reads, such as those that bash sets: runs that differ in no others share a server of workers."""
OF_KERNELS = ("TRITON_CACHE_DIR", "CUTE_DSL_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR")
"""Variables for kernels that are compiled as they run, of which the action's tests have none."""
SANDBOXED = re.compile("^--cgins-(regenerate|sandbox)")
"""Options of runs that have a sandbox."""
REQUEST_BYTES = 2**17
_STANDARD = 3
# Imports no `site`, and so takes a hundredth of a second.
_CLIENT = """\
#!{python} -IS
import json, os, signal, socket, sys
words = sys.argv[1:]
if words[:1] in (["-c"], ["-m"]):
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    line.connect({address!r})
    request = json.dumps(dict(words=words, cwd=os.getcwd(), env=dict(os.environ))).encode()
    socket.send_fds(line, [request], [0, 1, 2])
    if pid := int(line.recv(99)):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: os.kill(pid, number))
        code = int(line.recv(99))
        sys.exit(code if code >= 0 else 128 - code)
os.execv({python!r}, [{python!r}, *words])
"""


class ForkedPython:
    """The process that forks, started when it is first needed, with the variables that there were when this was made."""

    def __init__(self, imports: Sequence[str] = GATE) -> None:
        self._imports = imports
        self._environment = dict(os.environ)
        self._owned = tempfile.TemporaryDirectory(prefix="forked-")
        self._address = str(Path(self._owned.name, "address"))
        self._client = Path(self._owned.name, "python")
        self._is_started = False

    def run(
        self,
        words: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] = os.environ,
        timeout: float = 300,
        forked: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run `python -m MODULE …`, or `python -c PROGRAM …`, and give what it printed; `forked=False` starts a program.

        Raises:
            subprocess.TimeoutExpired: it ran for more than `timeout` seconds, and was killed.
        """
        request = {"words": words, "cwd": str(cwd or Path.cwd()), "env": dict(env)}
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            ends = [os.open(os.devnull, os.O_RDONLY), out.fileno(), err.fileno()]
            code = self._forked(request, ends, timeout) if forked else None
            os.close(ends[0])
            if code is None:
                command = [sys.executable, *words]
                return subprocess.run(
                    command, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout, check=False
                )
            out.seek(0)
            err.seek(0)
            printed = (out.read().decode(), err.read().decode())
        return subprocess.CompletedProcess([sys.executable, *words], code, *printed)

    def executable(self) -> Path:
        """A program that is called as `python` is, and forks for `-c` and `-m`."""
        self._start()
        return self._client

    def _forked(self, request: dict[str, Any], ends: list[int], timeout: float) -> int | None:
        self._start()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
            line.connect(self._address)
            socket.send_fds(line, [json.dumps(request).encode()], ends)
            pid = int(line.recv(REQUEST_BYTES))
            if not pid:
                return None
            line.settimeout(timeout)
            try:
                return int(line.recv(REQUEST_BYTES))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(request["words"], timeout) from None

    def _start(self) -> None:
        if self._is_started:
            return
        self._is_started = True
        self._client.write_text(_CLIENT.format(python=sys.executable, address=self._address))
        self._client.chmod(0o755)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.bind(self._address)
        listening.listen()
        with listening:
            process = subprocess.Popen(
                [sys.executable, __file__, str(listening.fileno()), str(self._client), *self._imports],
                pass_fds=[listening.fileno()],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
            )
        atexit.register(process.communicate)


@cache
def gate_python() -> ForkedPython:
    """The one that runs pytest and `cgins`."""
    return ForkedPython()


def serve(listening: socket.socket, client: str, imports: Sequence[str]) -> tuple[str, str]:
    """Fork a process for each request; returns in each of them, with `-m` or `-c` and what to run."""
    from _pytest.assertion.rewrite import AssertionRewritingHook

    from pytest_cgins.core import documents
    from pytest_cgins.core.session_report import SessionReport
    from pytest_cgins.run import forking

    # It would warn of plugins that are imported already.
    AssertionRewritingHook._warn_already_imported = lambda *_: None  # type: ignore[method-assign]
    own = at_start(os.environ)
    forking._key = shared_key(forking._key)
    # Each run has a judge: its imports are behind what forks workers, too.
    forking._BOOT = f"import pytest_cgins.verify.judge; {forking._BOOT}"
    for module in imports:
        importlib.import_module(module)
    documents.prepare(SessionReport)
    gc.freeze()
    poll = select.poll()
    for fd in (0, listening.fileno()):
        poll.register(fd)
    running: dict[int, tuple[int, socket.socket]] = {}
    while 0 not in (ready := dict(poll.poll())):  # it is closed by who started us
        for fd in ready.keys() & running.keys():
            poll.unregister(fd)
            os.close(fd)
            pid, line = running.pop(fd)
            _tell(line, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            line.close()
        if listening.fileno() not in ready:
            continue
        line, _ = listening.accept()
        data, ends, _, _ = socket.recv_fds(line, REQUEST_BYTES, _STANDARD, socket.MSG_CMSG_CLOEXEC)
        request = json.loads(data)
        pid = 0
        if at_start(request["env"]) == own:
            os.environ.clear()
            os.environ.update(request["env"])
            if request["words"][:2] == ["-m", "pytest"]:
                _have_server(is_sandboxed=any(map(SANDBOXED.search, request["words"])))
            pid = os.fork()
            if pid == 0:
                return _become(request, ends, client)
            running[handle := os.pidfd_open(pid)] = (pid, line)
            poll.register(handle, select.POLLIN)
        for fd in ends:
            os.close(fd)
        _tell(line, pid)
    raise SystemExit


def _tell(line: socket.socket, number: int) -> None:
    with suppress(OSError):  # nobody waits any more
        line.send(str(number).encode())


def shared_key(key_of: Callable[..., Any]) -> Callable[..., Any]:
    """The key of a server of workers, without variables that no worker reads."""
    return lambda module, env: key_of(
        module, {name: value for name, value in env.items() if not name.startswith(_ignored())}
    )


def at_start(env: Mapping[str, str]) -> dict[str, str]:
    """The variables of `AT_START`."""
    return {name: value for name, value in env.items() if name.startswith(AT_START)}


def _ignored() -> tuple[str, ...]:
    """Beginnings of the variables in which runs that share a server may differ."""
    return OF_RUN + OF_KERNELS if "GITHUB_ACTIONS" in os.environ else OF_RUN


def _have_server(*, is_sandboxed: bool) -> None:
    """Have torch imported for the workers of a run with these variables, by a process that all such runs share.

    A sandboxed run has its kernels' caches in the sandbox, so its trusted worker gets no variables for them.
    """
    from pytest_cgins.building.build import jit_environment
    from pytest_cgins.building.cache.store import default_cache
    from pytest_cgins.run.environment import worker_environment
    from pytest_cgins.run.forking import server_for

    caches = [jit_environment(default_cache())] + [{}] * is_sandboxed
    module = "pytest_cgins.run.verification_service"
    servers = [server_for(module, worker_environment("0" * 32, own)) for own in caches]
    for server in filter(None, servers):
        server.wait_until_ready()


class _Other:
    """A process that another one started: it is looked at, and not ended."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, 0)
            return None
        return -signal.SIGKILL

    def kill(self) -> None:
        """Leave it alone."""

    wait = kill


def _become(request: dict[str, Any], ends: list[int], client: str) -> tuple[str, str]:
    """Take over folder, descriptors, words and the parent's servers; workers of xdist are forked, too."""
    from execnet import gateway_io

    from pytest_cgins.run import forking, pool

    arguments = gateway_io.popen_args
    gateway_io.popen_args = lambda spec: [client, *arguments(spec)[2:]]  # without `python -u`

    servers: Any = forking._servers
    servers._owner = os.getpid()
    for server in servers._current.values():
        server._process = _Other(server.pid)
    pool.MEASURING = frozenset()  # type: ignore[misc]
    os.chdir(request["cwd"])
    for number, end in enumerate(ends):
        os.dup2(end, number)
        os.close(end)
    # Those that there are remember what their descriptors were, such as whether one can seek.
    sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    kind, text, *words = request["words"]
    sys.path[0] = request["cwd"] if kind == "-m" else ""
    sys.argv = [kind, *words]
    return kind, text


if __name__ == "__main__":
    kind, text = serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2], sys.argv[3:])
    if kind == "-m":
        runpy.run_module(text, run_name="__main__", alter_sys=True)
    else:
        exec(compile(text, "<string>", "exec"), {"__name__": "__main__"})
