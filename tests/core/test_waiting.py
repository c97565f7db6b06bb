"""Waits for locks, builds and tries: said after two seconds, once, and in the summary; short ones never."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_cgins.building.compilers import slots
from pytest_cgins.core import locks, logs, waiting
from pytest_cgins.core.errors import GitHubError
from pytest_cgins.core.waiting import Wait, Waited
from pytest_cgins.pull_request.clone import Clone
from pytest_cgins.pull_request.remote import parse
from pytest_cgins.pull_request.transport import Transport
from pytest_cgins.regenerate.methods import memory_file
from pytest_cgins.regenerate.provider import files
from pytest_cgins.regenerate.provider.base import Limits
from pytest_cgins.regenerate.provider.openai_compatible import OpenAICompatible
from pytest_cgins.report import history_file
from pytest_cgins.timing import lock
from tests.building.processes import executable, holding
from tests.regenerate.llm_server import LlmServer, Reply
from tests.regenerate.provider_help import KEY, KEY_ENV, place_of, request, settled

# Holds a file, a build slot or a device until its stdin is closed.
HOLDER = """
import sys, time
from pathlib import Path
from pytest_cgins.core import locks
from pytest_cgins.building.compilers import slots
from pytest_cgins.timing import lock
kind, path = sys.argv[1], Path(sys.argv[2])
if kind == "file":
    assert locks.acquire(path, 0.0) is not None
elif kind == "slots":
    held = slots.hold(path, "other", 10**15, time.monotonic() + 60)
    held.__enter__()
else:
    held = getattr(lock, kind)("gpu-1", wait_s=5, folder=path)
    held.__enter__()
print("held", flush=True)
sys.stdin.read()
"""
SHORT_S = 0.3
SPEED = 10
"""Of the clock by which waits are timed, where it is not the machine's."""
KERNEL = """\
// cgins: same(Tensor x) -> Tensor
#include <cgins.h>
extern "C" int same(const DLTensor*, DLTensor*, cgins_stream) { return 0; }
"""
CONFIG = "version: 1\nkernels:\n  same: {op: torch.clone, source: same.cpp}\n"


@dataclass
class Heard:
    """Messages, and when they came, in seconds since the wait began."""

    began: float = field(default_factory=time.monotonic)
    lines: list[tuple[float, str]] = field(default_factory=list)
    then: Callable[[], None] = lambda: None
    """Called after each."""

    def take(self, line: str) -> None:
        self.lines.append((SPEED * (time.monotonic() - self.began), line))
        self.then()

    def only(self) -> str:
        """The one line; it came when it should, or some ticks later."""
        ((seconds, line),) = self.lines
        assert 1.9 <= seconds <= 2 + 4 * SPEED, self.lines
        return line


@pytest.fixture
def heard() -> Iterator[Heard]:
    """What is said at the default level, in a run of its own."""
    found = Heard()
    handler = logs.Lines(found.take, logs.levels(logs.DEFAULT, 0))
    waiting.forget()
    handler.open()
    yield found
    handler.close()
    waiting.forget()


@pytest.fixture
def fast(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> Heard:
    """The same, where waits are timed by a clock that is faster."""
    clock = SimpleNamespace(
        monotonic=lambda: SPEED * time.monotonic(), sleep=lambda seconds: time.sleep(seconds / SPEED)
    )
    monkeypatch.setattr(waiting, "time", clock)
    return heard


@contextmanager
def held(kind: str, path: Path, until: Heard | None = None) -> Iterator[int]:
    """Another process has it, until something is said, or for a short time; its id."""
    with holding(HOLDER, kind, path) as (process, said):
        assert said == "held"
        assert process.stdin is not None
        if until:
            until.began, until.then = time.monotonic(), process.stdin.close
        else:
            threading.Timer(SHORT_S, process.stdin.close).start()
        yield process.pid


def _time(folder: Path) -> None:
    with lock.timing("gpu-1", wait_s=20, folder=folder):
        pass


def _verify(folder: Path) -> None:
    with lock.verifying("gpu-1", wait_s=20, folder=folder):
        pass


def _build_lock(path: Path) -> None:
    got = locks.acquire(path, 20.0, "the build of k/cpp")
    assert got is not None
    locks.release(got)


def _slot(folder: Path) -> None:
    with slots.hold(folder, "k/cpp", 1, time.monotonic() + 20):
        pass


def _memory(path: Path) -> None:
    memory_file.remember(path.with_name(path.name.removeprefix(".").removesuffix(".lock")), [])


LOCKS: dict[str, tuple[str, str, Callable[[Path], None], str]] = {
    "to time": ("verifying", "", _time, r"gpu-1: process {pid} of \S+( \(gw\d+\))? has been verifying since .*"),
    "to verify": ("timing", "", _verify, r"gpu-1: process {pid} of \S+( \(gw\d+\))? has been timing since .*"),
    "build": ("file", "base.lock", _build_lock, r"the build of k/cpp: process {pid} of \S+ has it"),
    "slot": ("slots", "", _slot, r"the build of k/cpp: the machine's 2 build slots are taken by other builds"),
    "memory of methods": (
        "file", ".methods.json.lock", _memory, r"\S+/methods\.json: process {pid} of \S+ has it",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOCKS)
def test_a_long_wait_for_a_lock(
    tmp_path: Path, fast: Heard, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It is said after two seconds who has it, and at the end how long that took."""
    monkeypatch.setenv("MAX_JOBS", "2")
    kind, file, wait, pattern = LOCKS[name]
    with held(kind, tmp_path / file, fast) as pid:
        wait(tmp_path / file)
    assert re.fullmatch("cgins: waiting for " + pattern.format(pid=pid), fast.only())
    (line,) = waiting.summary(waiting.waited())
    thing, _, why = pattern.format(pid=pid).partition(": ")
    assert re.fullmatch(rf"waited \d+ s for {thing} \({why}\)", line), line


@pytest.mark.parametrize("name", LOCKS)
def test_a_short_wait_for_a_lock(
    tmp_path: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Below two seconds nothing is said."""
    monkeypatch.setenv("MAX_JOBS", "2")
    kind, file, wait, _ = LOCKS[name]
    with held(kind, tmp_path / file):
        wait(tmp_path / file)
    assert heard.lines == []
    assert waiting.summary(waiting.waited()) == []


def test_a_history_that_is_locked(tmp_path: Path, fast: Heard) -> None:
    """A run that appends to a history waits for another that does."""
    path = tmp_path / "history.jsonl"
    path.touch()
    with path.open("a") as file, held("file", path, fast):
        history_file._lock(file.fileno(), path)
    assert fast.only() == f"cgins: waiting for {path}: another process has locked it"


# ---- tries


@contextmanager
def failing(times: int) -> Iterator[str]:
    """A server that answers 503 so often, and then an empty object."""
    left = [times]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            left[0] -= 1
            body = b"{}"
            self.send_response(503 if left[0] >= 0 else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("times", [1, 2])
def test_tries_of_requests_to_github(fast: Heard, times: int) -> None:
    """A pause of one second is silent; the second makes it three."""
    with failing(times) as url, closing(Transport(url, "token")) as transport:
        fast.began = time.monotonic()
        assert transport.request("GET", "/repos/x") == {}
    if times == 1:
        assert fast.lines == []
        return
    assert fast.only() == ("cgins: waiting for 127.0.0.1: try 2 of 4: GET /repos/x: status 503; again in 2 s")
    assert len(waiting.summary(waiting.waited())) == 1


def test_tries_of_git(tmp_path: Path, fast: Heard) -> None:
    """Where the server is in trouble, what git said of it is told, without the token."""
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    with failing(9) as server:
        url = f"{server}/octo/kernels.git"
        tool = Clone(tmp_path, token="secret-token", remote=parse(url))
        fast.began = time.monotonic()
        with pytest.raises(GitHubError, match="503"):
            tool.tip(url, "main")
    line = fast.only()
    assert re.match(r"cgins: waiting for git ls-remote: try 2 of 3: .*503", line), line
    assert "secret-token" not in line


@pytest.mark.exam
def test_tries_of_a_model(tmp_path: Path, fast: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that asks tells only its file; whoever waits for it says so."""
    monkeypatch.setenv(KEY_ENV, KEY)
    limits = Limits(
        connect_s=5, idle_s=20, try_s=20, deadline_s=60, tries=6, pause_s=0.3, longest_pause_s=0.4
    )
    with LlmServer([Reply.failing(503), Reply.failing(503), Reply(text="yes")]) as server:
        provider = OpenAICompatible(base_url=server.base_url, api_key_env=KEY_ENV, limits=limits)
        asked = request()
        with closing(provider):
            answer = settled(provider, asked, place_of(tmp_path, asked))
        assert getattr(answer, "text", answer) == "yes"
        url = server.base_url
    ((_, line),) = fast.lines
    assert re.match(rf"cgins: waiting for {re.escape(url)}\S*: try \d: .*503.*; again in \d\.\d s", line), (
        line
    )
    (line,) = waiting.summary(waiting.waited())
    assert re.match(rf"waited \d+ s for {re.escape(url)}", line)


@pytest.mark.exam
def test_another_process_that_asks_a_model(
    tmp_path: Path, fast: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was killed left its courier behind: the next one waits for its answer."""
    monkeypatch.setenv(KEY_ENV, KEY)
    asked = request()
    place = place_of(tmp_path, asked)
    with LlmServer([Reply(text="yes")]) as server:
        provider = OpenAICompatible(base_url=server.base_url, api_key_env=KEY_ENV)
        with closing(provider), held("file", place / files.LOCK, fast):
            settled(provider, asked, place)
    assert fast.only().endswith("another process asks it the same")


# ---- builds, by the command


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose compiler takes three seconds more."""
    slower = '#!/bin/sh\nfor word; do case $word in *.cpp) sleep 3;; esac; done\nexec g++ "$@"\n'
    script = executable(tmp_path / "cxx", slower)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setenv("CGINS_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "same.cpp").write_text(KERNEL)
    (folder / "cgins.yaml").write_text(CONFIG)
    return folder


def _cgins(folder: Path) -> subprocess.Popen[str]:
    code = "import sys; from pytest_cgins.app.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "build"]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.exam
def test_builds_of_two_commands(slow: Path) -> None:
    """Each says that it waits for the build, the one that does not build who does; both sum it up."""
    first = _cgins(slow)
    assert first.stderr is not None
    time.sleep(0.3)
    second = _cgins(slow)
    said = [process.communicate(timeout=120)[1].splitlines() for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0)
    assert all(len(lines) == 2 for lines in said), said
    assert all(re.match(r"cgins: waiting for the build of same/cpp", lines[0]) for lines in said), said
    named = [one for lines in said if (one := re.search(r"process (\d+) of \S+ has it", lines[0]))]
    assert [int(one[1]) for one in named] in ([first.pid], [second.pid]), said
    assert all(re.match(r"cgins: waited [2-9] s for the build of same/cpp", lines[1]) for lines in said), said


# ---- the summary


def test_waits_of_several_processes_are_added_up() -> None:
    """A thing has one line, the longest first; little in sum has none; the rest is counted."""
    parts = [
        Waited(what="cpu", why="", seconds=1.5, waits=3),
        Waited(what="cpu", why="process 7 has it", seconds=9.0, waits=1),
        Waited(what="file", why="", seconds=1.9, waits=1),
        *(Waited(what=f"the build of k/{n}", why="", seconds=20.0 + n, waits=1) for n in range(9)),
    ]
    lines = waiting.summary(parts)
    assert lines[0] == "waited 28 s for the build of k/8"
    assert lines[-1] == "waited 30 s for 2 more things"
    assert len(lines) == waiting.MOST_LINES + 1
    assert waiting.summary(parts[:3]) == ["waited 10 s for cpu in 4 waits (process 7 has it)"]


def test_a_busy_device_is_no_litany(fast: Heard) -> None:
    """Waits for the same thing within half a minute are one line; threads that wait together count once."""

    def wait() -> None:
        with Wait("cpu") as one:
            one.sleep(2.2)

    with ThreadPoolExecutor(3) as pool:
        for waited in [pool.submit(wait) for _ in range(3)]:
            waited.result()
    wait()
    assert [line for _, line in fast.lines] == ["cgins: waiting for cpu"]
    (total,) = waiting.waited()
    assert total.seconds >= 4.4
    assert total.seconds < 8, "three that wait together count once"
    assert total.waits == 2


def test_words_of_others_do_not_reach_the_terminal_raw(fast: Heard) -> None:
    """What a server or a lock file says has no control characters left."""
    with Wait("it", "a\x1b[2Jb\nc") as one:
        one.sleep(2.1)
    assert fast.only() == "cgins: waiting for it: a [2Jb c"
