"""Who may use a device: one that times, or any number that verify."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from pytest_cgins.core.errors import InfrastructureError
from pytest_cgins.timing import lock

HOLDER = """
import os, sys, time
from pathlib import Path
from pytest_cgins.timing import lock
with getattr(lock, sys.argv[2])("gpu-1", wait_s=5, folder=Path(sys.argv[1])):
    {inside}
    print("held", flush=True)
    sys.stdin.readline()
print("over", flush=True)
"""
# A process that times and verifies on two devices at random, and writes down when it did: one line a hold.
ACTOR = """
import random, sys, time
from pathlib import Path
from pytest_cgins.timing import lock
folder, seed, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
chance = random.Random(seed)
print("ready", flush=True)
sys.stdin.readline()
end = time.monotonic() + seconds
with open(folder / f"{seed}.log", "w") as log:
    while time.monotonic() < end:
        doing, key = chance.choice(["timing", "verifying", "verifying"]), chance.choice(["gpu-1", "gpu-1", "gpu-2"])
        with getattr(lock, doing)(key, wait_s=20, folder=folder):
            start = time.monotonic_ns()
            time.sleep(chance.choice([0, 0.001, 0.01]))
            print(key, doing, start, time.monotonic_ns(), file=log)
        time.sleep(chance.choice([0, 0, 0.002]))
"""
# One that verifies over and over, each time for 20 ms.
BUSY = """
import sys, time
from pathlib import Path
from pytest_cgins.timing import lock
print("ready", flush=True)
while True:
    with getattr(lock, sys.argv[2])("gpu-1", wait_s=20, folder=Path(sys.argv[1])):
        time.sleep(0.02)
"""

Start = Callable[..., "Started"]


class Started:
    """A process of a test, whose next line has been read."""

    def __init__(self, script: str, *arguments: object) -> None:
        command = [sys.executable, "-c", script, *map(str, arguments)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.said = self.line()

    def line(self) -> str:
        return self._stream(self.process.stdout).readline().strip()

    def go_on(self) -> None:
        stream = self._stream(self.process.stdin)
        stream.write("\n")
        stream.flush()

    @staticmethod
    def _stream(stream: IO[str] | None) -> IO[str]:
        assert stream is not None
        return stream


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts processes that end with the test."""
    started: list[Started] = []

    def begin(script: str, *arguments: object) -> Started:
        started.append(Started(script, tmp_path, *arguments))
        return started[-1]

    yield begin
    for one in started:
        one.process.kill()
        one.process.communicate()


def hold(start: Start, doing: str, inside: str = "") -> Started:
    holder = start(HOLDER.format(inside=inside), doing)
    assert holder.said == "held"
    return holder


def can(doing: str, folder: Path, key: str = "gpu-1", wait_s: float = 0.05) -> bool:
    try:
        with getattr(lock, doing)(key, wait_s=wait_s, folder=folder):
            return True
    except InfrastructureError:
        return False


@pytest.mark.parametrize(
    ("held", "wanted", "together"),
    [
        ("timing", "timing", False),
        ("timing", "verifying", False),
        ("verifying", "timing", False),
        ("verifying", "verifying", True),
    ],
)
def test_who_may_be_beside_whom(start: Start, tmp_path: Path, held: str, wanted: str, together: bool) -> None:
    """Two processes verify together; one that times is alone, on this device and no other."""
    holder = hold(start, held)
    assert can(wanted, tmp_path) is together
    assert can(wanted, tmp_path, key="gpu-2")
    holder.go_on()
    assert holder.line() == "over"
    assert can(wanted, tmp_path)


def test_the_message_says_who_holds_it(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait is as long as told, and its end names each holder: process, purpose, since when, test."""
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "cgins.yaml::relu/right/tiny/f32-2x3 (call)")
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw7")
    holders = [hold(start, "verifying").process.pid for _ in range(2)]
    begun = time.monotonic()
    with (
        pytest.raises(InfrastructureError) as caught,
        lock.timing("gpu-1", wait_s=0.2, folder=tmp_path),
    ):
        pass
    assert 0.2 <= time.monotonic() - begun < 5
    what = caught.value.what
    assert what.startswith("gave up timing on gpu-1 after waiting 0.2 s: process ")
    for pid in holders:
        assert f"process {pid} of " in what
    assert what.count(" (gw7) has been verifying since 20") == 2
    assert what.endswith(" in cgins.yaml::relu/right/tiny/f32-2x3")
    assert caught.value.remedy == "wait for them, end them, or run fewer processes at once"


def test_the_dead_are_not_named(start: Start, tmp_path: Path) -> None:
    """What a killed holder wrote down is removed by the next message, and names nobody."""
    dead = hold(start, "verifying").process
    dead.kill()
    dead.wait()
    living = hold(start, "verifying").process
    assert len(list(tmp_path.glob("*.holder"))) == 2
    with (
        pytest.raises(InfrastructureError, match=f"s: process {living.pid} of [^;]*$"),
        lock.timing("gpu-1", wait_s=0, folder=tmp_path),
    ):
        pass
    assert len(list(tmp_path.glob("*.holder"))) == 1


def test_many_holders_are_counted(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message stays short: after some holders only their number."""
    monkeypatch.setattr(lock, "_MOST_TOLD", 1)
    for _ in range(2):
        hold(start, "verifying")
    with (
        pytest.raises(InfrastructureError, match="; 1 more\n"),
        lock.timing("gpu-1", wait_s=0, folder=tmp_path),
    ):
        pass


@pytest.mark.parametrize("doing", ["timing", "verifying"])
def test_a_killed_holder_frees_the_device_at_once(start: Start, tmp_path: Path, doing: str) -> None:
    """No stale lock is left by a crash."""
    holder = hold(start, doing)
    os.kill(holder.process.pid, signal.SIGKILL)
    holder.process.wait()
    assert can("timing", tmp_path, wait_s=0)


def test_the_device_is_given_back_after_an_error(tmp_path: Path) -> None:
    """A kernel that raises does not keep the device, and leaves no record of itself."""
    with pytest.raises(KeyError), lock.timing("cpu", wait_s=1, folder=tmp_path):
        raise KeyError
    assert can("timing", tmp_path, key="cpu", wait_s=0)
    assert not list(tmp_path.glob("*.holder"))


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    """Thousands of cases leave as many open files as one, also of waits in vain."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    with lock.timing("cpu", wait_s=1, folder=tmp_path):
        assert not elsewhere(lambda: can("verifying", tmp_path, key="cpu", wait_s=0))
    assert can("verifying", tmp_path, key="cpu")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# ---- no two at once, and nobody for ever


@dataclass(frozen=True)
class Span:
    """When a process did what with a device."""

    key: str
    doing: str
    start: int
    end: int
    actor: str

    def meets(self, other: Span) -> bool:
        return self.key == other.key and self.start < other.end and other.start < self.end


def meetings(spans: list[Span]) -> list[tuple[Span, Span]]:
    """Pairs at the same time on the same device."""
    found: list[tuple[Span, Span]] = []
    current: list[Span] = []
    for span in sorted(spans, key=lambda one: one.start):
        current = [one for one in current if one.end > span.start]
        found += [(one, span) for one in current if one.meets(span)]
        current.append(span)
    return found


def test_the_checker_sees_meetings() -> None:
    """Spans that touch do not meet, and other devices do not count."""
    a, b = Span("gpu-1", "timing", 0, 10, "a"), Span("gpu-1", "verifying", 10, 20, "b")
    c, d = Span("gpu-1", "verifying", 15, 30, "c"), Span("gpu-2", "timing", 0, 30, "d")
    assert meetings([d, c, b, a]) == [(b, c)]
    assert len(meetings([a, b, c, Span("gpu-1", "timing", 5, 16, "e")])) == 4


def test_random_schedules(start: Start, tmp_path: Path) -> None:
    """Four processes at random for two seconds: nobody meets one that times; verifications meet each other."""
    actors = [start(ACTOR, seed, 2.0) for seed in range(4)]
    for actor in actors:
        actor.go_on()
    for actor in actors:
        assert actor.process.wait(timeout=60) == 0
    spans = []
    for log in tmp_path.glob("*.log"):
        for line in log.read_text().splitlines():
            key, doing, begun, ended = line.split()
            spans.append(Span(key, doing, int(begun), int(ended), log.stem))
    met = meetings(spans)
    assert not [pair for pair in met if "timing" in (pair[0].doing, pair[1].doing)]
    assert len(met) > 10
    for actor in range(4):
        for doing in ("timing", "verifying"):
            mine = [span for span in spans if span.actor == str(actor) and span.doing == doing]
            assert len(mine) >= 5, (actor, doing, len(spans))


@pytest.mark.parametrize(
    ("busy", "wanted"), [("verifying", "timing"), ("timing", "verifying"), ("timing", "timing")]
)
def test_nobody_starves(start: Start, tmp_path: Path, busy: str, wanted: str) -> None:
    """Three processes that want the device again and again, at any time at least one of them, let a fourth in."""
    for _ in range(3):
        assert start(BUSY, busy).said == "ready"
    time.sleep(0.2)
    waits = []
    for _ in range(5):
        begun = time.monotonic()
        with getattr(lock, wanted)("gpu-1", wait_s=20, folder=tmp_path):
            waits.append(time.monotonic() - begun)
    assert max(waits) < 10, waits


# ---- one process


def test_the_same_thread_asks_again(start: Start, tmp_path: Path) -> None:
    """Within its own hold a thread goes on at once, and only the outer end gives the device back."""
    for outer, inner in [("timing", "timing"), ("timing", "verifying"), ("verifying", "verifying")]:
        with getattr(lock, outer)("gpu-1", wait_s=1, folder=tmp_path):
            with getattr(lock, inner)("gpu-1", wait_s=0, folder=tmp_path):
                pass
            assert not elsewhere(lambda: can("timing", tmp_path, wait_s=0))
        assert elsewhere(lambda: can("timing", tmp_path, wait_s=0))


def test_timing_within_a_verification_is_refused(tmp_path: Path) -> None:
    """It would wait for itself, and says so at once, however long it may wait."""
    begun = time.monotonic()
    with (
        lock.verifying("gpu-1", wait_s=1, folder=tmp_path),
        pytest.raises(InfrastructureError) as caught,
        lock.timing("gpu-1", wait_s=60, folder=tmp_path),
    ):
        pass
    assert time.monotonic() - begun < 5
    assert (
        caught.value.what
        == "this thread is verifying on gpu-1, and asks to time on it: it would wait for itself"
    )
    assert caught.value.remedy == "end the verification before the timing begins"
    assert can("timing", tmp_path, wait_s=0)


def elsewhere(call: Callable[[], bool]) -> bool:
    """The answer in another thread."""
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    return found[0]


def test_another_thread_waits(tmp_path: Path) -> None:
    """Threads of one process exclude each other as processes do."""
    with lock.timing("gpu-1", wait_s=1, folder=tmp_path):
        assert not elsewhere(lambda: can("verifying", tmp_path, wait_s=0))
    with lock.verifying("gpu-1", wait_s=1, folder=tmp_path):
        assert elsewhere(lambda: can("verifying", tmp_path, wait_s=0))
        assert not elsewhere(lambda: can("timing", tmp_path, wait_s=0))


# ---- processes that are made meanwhile

CHILDREN = {
    # A child that has not run yet has not closed what it inherited.
    "a fork": """
    runs, tells = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(tells, b"1")
        time.sleep(60)
        os._exit(0)
    os.read(runs, 1)
    Path(sys.argv[1], "child").write_text(str(child))
""",
    "a command that inherits all descriptors": """
    import subprocess
    child = subprocess.Popen(["sleep", "60"], close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    Path(sys.argv[1], "child").write_text(str(child.pid))
""",
}


@pytest.mark.parametrize("kind", CHILDREN)
def test_a_child_does_not_keep_the_device(start: Start, tmp_path: Path, kind: str) -> None:
    """After its holder was killed the device is free, though a child made meanwhile lives on."""
    holder = hold(start, "timing", CHILDREN[kind])
    child = int((tmp_path / "child").read_text())
    try:
        holder.process.kill()
        holder.process.wait()
        os.kill(child, 0)
        assert can("timing", tmp_path, wait_s=0)
    finally:
        os.kill(child, signal.SIGKILL)


LEAVES = """
import os, sys
from pathlib import Path
from pytest_cgins.core.errors import InfrastructureError
from pytest_cgins.timing import lock
with lock.timing("gpu-1", wait_s=5, folder=Path(sys.argv[1])):
    child = os.fork()
    if child != 0:
        os.waitpid(child, 0)
        print("held", flush=True)
        sys.stdin.readline()
if child == 0:
    os._exit(0)
"""
ASKS = """
    child = os.fork()
    if child == 0:
        try:
            with lock.verifying("gpu-1", wait_s=0, folder=Path(sys.argv[1])):
                os._exit(1)
        except lock.InfrastructureError:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_child_does_not_give_the_device_back(start: Start, tmp_path: Path) -> None:
    """A forked process that leaves the block touches neither its parent's lock nor its record."""
    assert start(LEAVES).said == "held"
    assert not can("verifying", tmp_path, wait_s=0)
    assert len(list(tmp_path.glob("*.holder"))) == 1


def test_a_child_waits_for_its_parent(start: Start) -> None:
    """A forked process does not take its parent's hold for its own."""
    hold(start, "timing", ASKS)


# ---- folders and files


def test_a_lock_file_that_is_replaced_meanwhile(start: Start, tmp_path: Path) -> None:
    """Whoever waits turns to the new file, so that two processes never lock different files of one name."""
    holder = hold(start, "timing")
    waited: list[bool] = []
    thread = threading.Thread(target=lambda: waited.append(can("timing", tmp_path, wait_s=20)))
    thread.start()
    with (tmp_path / "new").open("w") as new:
        fcntl.flock(new, fcntl.LOCK_EX)
        time.sleep(0.1)
        (tmp_path / "new").replace(tmp_path / "gpu-1.lock")
        holder.go_on()
        assert holder.line() == "over"
        time.sleep(0.1)
        assert not waited
    thread.join()
    assert waited == [True]


def test_the_default_folder_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lock files lie where no other user can take them, and a folder that others can write is refused."""
    monkeypatch.delenv("CGINS_LOCK_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with lock.timing("cpu", wait_s=1):
        (folder,) = tmp_path.iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with pytest.raises(InfrastructureError, match="only this user"), lock.timing("cpu", wait_s=1):
        pass


def test_a_named_folder_is_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`CGINS_LOCK_DIR` names it, and other users' files there, which can only be read, are locked too."""
    real = os.open

    def others(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT and path.suffix in (".lock", ".turn"):
            raise PermissionError(13, "Permission denied")
        return real(path, flags, mode)

    monkeypatch.setenv("CGINS_LOCK_DIR", str(tmp_path))
    for name in ("gpu-1.lock", "gpu-1.turn"):
        (tmp_path / name).touch()
    monkeypatch.setattr(os, "open", others)
    with lock.timing("gpu-1", wait_s=1):
        assert not elsewhere(lambda: can("verifying", tmp_path, wait_s=0))
    (tmp_path / "gpu-1.lock").unlink()
    with pytest.raises(InfrastructureError) as caught, lock.timing("gpu-1", wait_s=1):
        pass
    assert caught.value.what == f"{tmp_path / 'gpu-1.lock'} cannot be opened: No such file or directory"
    assert "set CGINS_LOCK_DIR to another one" in caught.value.remedy


@pytest.mark.parametrize("name", ["absent", "file", "../relative"])
def test_a_named_folder_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """It is not made: one that was not mounted would be shared with nobody, and nobody would know."""
    (tmp_path / "file").touch()
    folder = name if name.startswith("..") else str(tmp_path / name)
    monkeypatch.setenv("CGINS_LOCK_DIR", folder)
    with pytest.raises(InfrastructureError) as caught, lock.timing("cpu", wait_s=1):
        pass
    assert (
        caught.value.what
        == f"CGINS_LOCK_DIR={folder} is not the absolute path of a folder that can be written"
    )
    assert "mount it in all containers" in caught.value.remedy
    assert not (tmp_path / "absent").exists()


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error that names the way out; nothing is timed without a lock."""

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(InfrastructureError) as caught, lock.timing("cpu", wait_s=1, folder=tmp_path):
        pass
    assert caught.value.what == f"{tmp_path} is on a file system without locks: No locks available"
    assert "set CGINS_LOCK_DIR to a folder on a local disk" in caught.value.remedy


def test_a_record_that_cannot_be_written_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk the device is held all the same; a message then has nobody to name."""

    def write(descriptor: int, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", write)
    with lock.timing("cpu", wait_s=1, folder=tmp_path):
        assert not elsewhere(lambda: can("timing", tmp_path, key="cpu", wait_s=0))
    assert not list(tmp_path.glob("*.holder"))
