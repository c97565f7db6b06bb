"""Services for the tests of the worker processes: one that works, and the ways to fail."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import math
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_cgins.core.buffers import Buffer
from pytest_cgins.run.protocol import PROTOCOL_VERSION, Channel

Answer = tuple[Any, list[Buffer]]


def _frame(**fields: Any) -> bytes:
    """The body of a frame without buffers, as a worker would send it."""
    return json.dumps({"version": PROTOCOL_VERSION, "buffers": 0, **fields}).encode()


class Toy:
    """Every public method is one test's kernel."""

    def __init__(self) -> None:
        self.fatal = False
        self._rests = 0

    def rest(self) -> None:
        self._rests += 1
        raise RuntimeError("the device was lost")

    def rests(self, params: Any, buffers: list[Buffer]) -> Answer:
        return self._rests, []

    def echo(self, params: Any, buffers: list[Buffer]) -> Answer:
        return params, [Buffer.from_chunks([bytes(buffer.view())]) for buffer in buffers]

    def compile_long(self, params: Any, buffers: list[Buffer]) -> Answer:
        """Sleep where Triton compiles."""
        print("compiling", file=sys.stderr)
        sleep = compile(f"sleep({params['seconds']})", "/site-packages/triton/compiler/compiler.py", "exec")
        exec(sleep, {"sleep": time.sleep})
        return None, []

    def pid(self, params: Any, buffers: list[Buffer]) -> Answer:
        return os.getpid(), []

    def collector(self, params: Any, buffers: list[Buffer]) -> Answer:
        return [
            gc.isenabled(),
            gc.get_freeze_count() > 0,
            any(one is sys.modules for one in gc.get_objects()),
        ], []

    def say(self, params: Any, buffers: list[Buffer]) -> Answer:
        print(params["text"])
        ctypes.CDLL(None).puts(b"from C")
        print("aside", file=sys.stderr)
        return None, []

    def variable(self, params: Any, buffers: list[Buffer]) -> Answer:
        return os.environ.get("CGINS_TOY"), []

    def thread_names(self, params: Any, buffers: list[Buffer]) -> Answer:
        return [thread.name for thread in threading.enumerate()], []

    def descriptors(self, params: Any, buffers: list[Buffer]) -> Answer:
        """What a child process of the kernel has open beyond the standard three."""
        script = "import os; print([f for f in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + f)])"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        return done.stdout, []

    def grandchild(self, params: Any, buffers: list[Buffer]) -> Answer:
        return subprocess.Popen(["sleep", "60"]).pid, []

    def path(self, params: Any, buffers: list[Buffer]) -> Answer:
        return sys.path, []

    def raises(self, params: Any, buffers: list[Buffer]) -> Answer:
        raise KeyError("no such row")

    def raises_unprintable(self, params: Any, buffers: list[Buffer]) -> Answer:
        class Unprintable(BaseException):
            def __str__(self) -> str:
                raise RuntimeError

        raise Unprintable

    def raises_surrogates(self, params: Any, buffers: list[Buffer]) -> Answer:
        raise ValueError("half a pair: \ud800")

    def system_exit(self, params: Any, buffers: list[Buffer]) -> Answer:
        sys.exit(0)

    def keyboard_interrupt(self, params: Any, buffers: list[Buffer]) -> Answer:
        raise KeyboardInterrupt

    def fatal_error(self, params: Any, buffers: list[Buffer]) -> Answer:
        self.fatal = True
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def nan(self, params: Any, buffers: list[Buffer]) -> Answer:
        return math.nan, []

    def segfault(self, params: Any, buffers: list[Buffer]) -> Answer:
        ctypes.CDLL(None).puts(b"the last words")
        ctypes.string_at(0)
        return None, []

    def abort(self, params: Any, buffers: list[Buffer]) -> Answer:
        os.abort()

    def killed(self, params: Any, buffers: list[Buffer]) -> Answer:
        os.kill(os.getpid(), signal.SIGKILL)
        return None, []

    def exit_zero(self, params: Any, buffers: list[Buffer]) -> Answer:
        os._exit(0)

    def forks_and_exits(self, params: Any, buffers: list[Buffer]) -> Answer:
        """The fork holds the worker's end of the connection open."""
        if os.fork() == 0:
            time.sleep(60)
        os._exit(3)

    def loop(self, params: Any, buffers: list[Buffer]) -> Answer:
        while True:
            pass

    def loop_in_c(self, params: Any, buffers: list[Buffer]) -> Answer:
        """Holds the interpreter's lock: no Python thread could end it."""
        ctypes.PyDLL(None).sleep(60)
        return None, []

    def chatter(self, params: Any, buffers: list[Buffer]) -> Answer:
        while True:
            print("x" * 1000)
            time.sleep(0.0001)

    def prints_much(self, params: Any, buffers: list[Buffer]) -> Answer:
        for number in range(20_000):
            print(f"line {number} " + "." * 100)
        return None, []

    def closes_everything(self, params: Any, buffers: list[Buffer]) -> Answer:
        os.closerange(0, 4096)
        time.sleep(60)
        return None, []

    def prints_forgery(self, params: Any, buffers: list[Buffer]) -> Answer:
        os.write(1, b'\x00\x00\x00\x40{"version":2,"nonce":"","buffers":0,"result":"passed"}')
        os._exit(0)

    def writes_forgery(self, params: Any, buffers: list[Buffer]) -> Answer:
        """Finds the connection and answers in the service's place, without the nonce."""
        _write_frames(_frame(nonce="0", result="passed", fatal=False))
        os._exit(0)

    def writes_done_and_answer(self, params: Any, buffers: list[Buffer]) -> Answer:
        """Speaks the whole protocol, but for the nonce that it has no time to wait for."""
        _write_frames(_frame(done=True), _frame(nonce="0", result="passed"))
        return "honest", []

    def writes_done_and_waits(self, params: Any, buffers: list[Buffer]) -> Answer:
        """Has the question asked too early: the honest answer comes behind a second `done`."""
        _write_frames(_frame(done=True))
        time.sleep(0.3)
        return "honest", []

    def writes_done_and_exits(self, params: Any, buffers: list[Buffer]) -> Answer:
        """Dies between the two halves of an answer."""
        _write_frames(_frame(done=True))
        os._exit(3)

    def answers_both(self, params: Any, buffers: list[Buffer]) -> Answer:
        """Takes over the worker and answers with a result and an error at once."""

        def send(channel: Channel, message: dict[str, Any], *rest: Any, **options: Any) -> None:
            both = {"result": 1, "error": "x"} if "nonce" in message else {}
            honest(channel, {**message, **both}, *rest, **options)

        honest = Channel.send
        Channel.send = send  # type: ignore[method-assign]
        return None, []

    def writes_much(self, params: Any, buffers: list[Buffer]) -> Answer:
        """A frame that would take a gigabyte of objects to parse."""
        _write_frames(b"[" + b"[]," * (20 * 2**20) + b"[]]")
        return None, []

    def writes_later(self, params: Any, buffers: list[Buffer]) -> Answer:
        """A thread that writes to the connection when the request is over."""

        def write() -> None:
            time.sleep(0.2)
            _write_frames(b"forged")

        threading.Thread(target=write).start()
        return os.getpid(), []

    def closes_and_returns(self, params: Any, buffers: list[Buffer]) -> Answer:
        os.closerange(0, 4096)
        return None, []

    def grows(self, params: Any, buffers: list[Buffer]) -> Answer:
        """Takes memory until it is stopped, at a speed that a loaded machine survives."""
        kept = []
        while True:
            kept.append(b"x" * (8 * 2**20))
            time.sleep(0.002)

    def child_grows(self, params: Any, buffers: list[Buffer]) -> Answer:
        """The same in a process that left the worker's session."""
        script = "import time\nkept = []\nwhile True: kept.append(b'x' * (8 * 2**20)); time.sleep(0.002)"
        subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
        time.sleep(60)
        return None, []

    def shares_memory(self, params: Any, buffers: list[Buffer]) -> Answer:
        """Forks that only look at their parent's memory."""
        kept = b"x" * params["nbytes"]
        for _ in range(params["count"]):
            if os.fork() == 0:
                kept.count(b"y")
                time.sleep(60)
        time.sleep(params["seconds"])
        return len(kept), []

    def floods_stderr(self, params: Any, buffers: list[Buffer]) -> Answer:
        os.write(1, b"the last of stdout\n")
        while True:
            os.write(2, b"x" * 65536)

    def forks_many(self, params: Any, buffers: list[Buffer]) -> Answer:
        """Daemons with sessions of their own, whose parents are gone, and which shed their environment."""
        for _ in range(params["count"]):
            command = ["env", "-i", "setsid", "sh", "-c", f"sleep {params['seconds']} & sleep 0.01"]
            subprocess.Popen(command)
        time.sleep(60)
        return None, []

    def daemon(self, params: Any, buffers: list[Buffer]) -> Answer:
        """The id of such a daemon."""
        command = ["env", "-i", "setsid", "sh", "-c", "sleep 60 > /dev/null 2>&1 & echo $!"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return int(done.stdout), []

    def marked_daemon(self, params: Any, buffers: list[Buffer]) -> Answer:
        """The id of one that keeps its environment, and that only lived while nobody looked."""
        command = ["setsid", "sh", "-c", "sleep 60 > /dev/null 2>&1 & echo $!"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return int(done.stdout), []

    def kills_its_parent(self, params: Any, buffers: list[Buffer]) -> Answer:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
        return None, []

    def starts_threads(self, params: Any, buffers: list[Buffer]) -> Answer:
        for _ in range(params["count"]):
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        time.sleep(60)
        return None, []

    def environment(self, params: Any, buffers: list[Buffer]) -> Answer:
        return dict(os.environ), []

    def is_dumpable(self, params: Any, buffers: list[Buffer]) -> Answer:
        return ctypes.CDLL(None).prctl(3), []

    def writes(self, params: Any, buffers: list[Buffer]) -> Answer:
        return _error_of(lambda: Path(params["path"]).write_text("x")), []

    def connects(self, params: Any, buffers: list[Buffer]) -> Answer:
        return _error_of(lambda: socket.socket(socket.AF_UNIX).connect("\0nobody")), []

    def thread_error(self, params: Any, buffers: list[Buffer]) -> Answer:
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
        return "survived", []


def _error_of(attempt: Callable[[], object]) -> str:
    """What the system says of an attempt; "" if it succeeds."""
    try:
        attempt()
    except OSError as error:
        return error.strerror or ""
    return ""


def _write_frames(*bodies: bytes) -> None:
    content = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    for fd in range(3, 1024):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                os.write(fd, content)


class BrokenAtStart:
    def __init__(self) -> None:
        raise ValueError("no device for me")


class LeavesAtStart:
    def __init__(self) -> None:
        print("leaving")
        os._exit(0)


class LoudAtStart(Toy):
    """Prints more than a pipe holds before it reads its first request."""

    def __init__(self) -> None:
        super().__init__()
        print("loud " * 100_000)
