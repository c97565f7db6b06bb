"""What a kernel cannot have more of, and what does not outlive it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_cgins.run.sandbox.sandbox import Sandbox

from .conftest import LIMIT_S, ROOMY, Trial, python, run, script

MIB = 1 << 20


def limited(sandbox: Sandbox, **limits: int) -> Sandbox:
    """The same with other limits."""
    return replace(sandbox, limits=replace(ROOMY, **limits))


def test_private_memory(sandbox: Sandbox) -> None:
    """An allocation beyond the limit fails, and a reservation that is not written to is none."""
    small = limited(sandbox, memory_bytes=256 * MIB)
    body = """
    import mmap
    mmap.mmap(-1, 1 << 40, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, prot=0)
    bytearray(size)
    """
    assert run(small.wrap(script(body, size=512 * MIB))).stdout == "denied: MemoryError\n"
    assert run(small.wrap(script(body, size=64 * MIB))).stdout == "reached\n"


_WRITES_ALL = "file = {}\nfor _ in range(400): os.write(file, bytes(1 << 20))"


@pytest.mark.parametrize(
    "use",
    [
        "import mmap; memory = mmap.mmap(-1, 400 << 20)\nfor at in range(0, 400 << 20, 4096): memory[at] = 1",
        _WRITES_ALL.format("os.memfd_create('x')"),
        _WRITES_ALL.format("os.open('/dev/shm/x', os.O_RDWR | os.O_CREAT)"),
    ],
    ids=["shared", "file without a name", "file"],
)
def test_memory_of_all_processes(sandbox: Sandbox, use: str) -> None:
    """Shared memory counts, and files in memory that nobody maps: beyond the limit all are killed, and a line says so."""
    small = limited(sandbox, memory_bytes=256 * MIB, scratch_bytes=1 << 30, file_bytes=1 << 30)
    ran = run(small.wrap(script(f"{use}\nimport time; time.sleep(60)")))
    assert ran.returncode == -signal.SIGKILL
    assert "MiB of memory in use, 256 MiB allowed" in ran.stderr


@pytest.mark.exam
def test_files_without_end(sandbox: Sandbox) -> None:
    """Empty files have a limit, too: each takes memory of the system's."""
    body = """
    import time
    for number in range(2_000_000):
        os.close(os.open(f"{folder}/{number}", os.O_WRONLY | os.O_CREAT))
    """
    ran = run(sandbox.wrap(script(body, folder="/tmp")))
    assert ran.returncode == -signal.SIGKILL or "denied: ENOSPC" in ran.stdout
    assert "files in memory, 100,000 allowed" in ran.stderr or "ENOSPC" in ran.stdout


def test_fork_bomb(sandbox: Sandbox) -> None:
    """However many processes are started, they are no more than the limit, and all are gone at the end."""
    body = """
    import time
    started = 0
    try:
        while started < 2000:
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
            started += 1
        time.sleep(60)
    finally:
        print("started", started, flush=True)
    """
    ran = run(sandbox.wrap(script(body)))
    if ran.returncode == -signal.SIGKILL:
        assert "600 allowed" in ran.stderr
    else:
        started, verdict = ran.stdout.splitlines()
        assert int(started.split()[1]) < 600
        assert verdict == "denied: EAGAIN"


def test_threads_count(sandbox: Sandbox) -> None:
    """A flood of threads is ended as one of processes is."""
    body = """
    import threading, time
    threading.stack_size(65536)
    try:
        for _ in range(2000):
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    except RuntimeError:
        raise OSError(errno.EAGAIN, "") from None
    time.sleep(60)
    """
    ran = run(sandbox.wrap(script(body)))
    assert ran.stdout == "denied: EAGAIN\n" or "600 allowed" in ran.stderr


def test_file_size(fenced: Trial) -> None:
    """A file ends at the limit, also one that has no name."""
    bodies = [
        # Without the limit's signal, which ends a program that does not ask to be told.
        f"signal.signal(signal.SIGXFSZ, signal.SIG_IGN); file = {made}; os.pwrite(file, b'xx', (1 << 20) - 1 + at)"
        for made in ("os.memfd_create('x')", "os.open('/tmp/x', os.O_CREAT | os.O_WRONLY)")
    ]
    assert fenced(*bodies, at=-1) == "reached\nreached"
    assert fenced(*bodies, at=1) == "denied: EFBIG\ndenied: EFBIG"


def test_room_in_the_scratch_folder(fenced: Trial) -> None:
    """All its files together have a limit, and so have those of /dev/shm."""
    bodies = [
        f"for index in range(8): open(f'{folder}/{{index}}', 'wb').write(bytes(1 << 20))"
        for folder in ("/tmp", "/dev/shm")
    ]
    assert fenced(*bodies) == "denied: ENOSPC\ndenied: ENOSPC"


def test_open_files(fenced: Trial) -> None:
    """Descriptors have a limit."""
    assert fenced("for _ in range(300): os.dup(0)") == "denied: EMFILE"


def test_cpu_time(sandbox: Sandbox) -> None:
    """A process that has used up its time is ended, by the signal for it or by SIGKILL."""
    ran = run(limited(sandbox, cpu_s=1).wrap(python("while True: pass")))
    assert ran.returncode in (-signal.SIGXCPU, -signal.SIGKILL)


def test_no_core_dumps(sandbox: Sandbox) -> None:
    """A crash leaves no dump: 1 is the one value that also stops programs that take dumps by a pipe."""
    ran = run(sandbox.wrap(python("import resource; print(resource.getrlimit(resource.RLIMIT_CORE))")))
    assert ran.stdout.strip() == "(1, 1)"


# ---- what ends when

DAEMON = """
import os, sys, time
reached, reach = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("daemon", flush=True)
        os.write(reach, b".")
        time.sleep(100)
    os._exit(0)
os.wait()
os.read(reached, 1)
{then}
"""


@pytest.fixture
def lifeline() -> Iterator[tuple[int, int]]:
    """A pipe, to see by its end that nobody holds its other one any more."""
    read, write = os.pipe()
    yield read, write
    os.close(read)


def is_cut(read: int) -> bool:
    """Whether nobody can write any more; what was written is thrown away."""
    while select.select([read], [], [], LIMIT_S)[0]:
        if os.read(read, 4096) == b"":
            return True
    return False


def test_nothing_is_left_behind(sandbox: Sandbox, lifeline: tuple[int, int]) -> None:
    """Once the sandbox has ended, so have processes that left their session and their parent."""
    read, write = lifeline
    ran = run(sandbox.wrap(python(DAEMON.format(then=""))), pass_fds=[write])
    os.close(write)
    assert ran.stdout == "daemon\n"
    assert ran.returncode == 0
    # At once: the launcher ends after the last process has.
    assert select.select([read], [], [], 0)[0]
    assert os.read(read, 1) == b""


_PARENT = """
import os, subprocess, sys
words = [word if not word.startswith('parent=') else f'parent={os.getpid()}' for word in sys.argv[2:]]
subprocess.run(words, pass_fds=[int(sys.argv[1])])
"""


@pytest.mark.parametrize("is_parent", [False, True], ids=["launcher", "parent"])
def test_whoever_is_killed_takes_all_along(
    sandbox: Sandbox, lifeline: tuple[int, int], is_parent: bool
) -> None:
    """SIGKILL to the one process that the parent knows ends all; so does the death of pytest, however it dies."""
    read, write = lifeline
    command = sandbox.wrap(python(DAEMON.format(then="time.sleep(100)")))
    if is_parent:
        command = [*python(_PARENT), str(write), *command]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, pass_fds=[write], start_new_session=is_parent
    ) as process:
        os.close(write)
        assert process.stdout is not None
        assert process.stdout.readline() == b"daemon\n"
        process.kill()
        assert is_cut(read)


def test_parent_that_is_gone(sandbox: Sandbox) -> None:
    """A launcher that is not the child of who asked for it does nothing."""
    words = ["parent=1" if word.startswith("parent=") else word for word in sandbox.wrap(["echo", "x"])]
    assert run(words).stdout == ""


# ---- how it ends


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import sys; sys.exit(7)", 7),
        ("import os; os.abort()", -signal.SIGABRT),
        ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
    ],
)
def test_ends_as_the_worker_did(sandbox: Sandbox, code: str, expected: int) -> None:
    """The parent sees the worker's own exit status or signal."""
    assert run(sandbox.wrap(python(code))).returncode == expected


def test_first_process_cannot_be_stopped(sandbox: Sandbox) -> None:
    """Signals to the process that looks after the worker are of no effect."""
    code = "import os\nfor name in range(1, 65):\n try: os.kill(1, name)\n except OSError: pass\nos._exit(9)"
    assert run(sandbox.wrap(python(code))).returncode == 9


def test_failure_is_told(sandbox: Sandbox) -> None:
    """What cannot be set up is an exit status of its own and a line."""
    ran = run(sandbox.wrap(["no-such-program"]))
    assert ran.returncode == 125
    assert "pytest-cgins: the sandbox could not be set up" in ran.stderr
    assert "No such file" in ran.stderr


def test_scratch_is_nobody_elses(sandbox: Sandbox, fenced: Trial, tmp_path: Path) -> None:
    """It is writable, of this sandbox alone, and leaves nothing on the host."""
    name = f"{sandbox.scratch}/{tmp_path.name}-scratch"
    body = "assert not os.path.exists(name); open(name, 'w').close(); os.mkdir(name + '-folder')\n"
    body += "os.rename(name, name + '-folder/moved')"
    assert fenced(body, name=name) == "reached"
    assert fenced(body, name=name) == "reached"
    assert not Path(name + "-folder").exists()
    ran = run(sandbox.wrap([*python("import tempfile; print(tempfile.mkdtemp())")]))
    assert ran.stdout.startswith(str(sandbox.scratch))


def test_works_in_the_same_folder(sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker starts where its parent is, if that can be seen."""
    monkeypatch.chdir(tmp_path)
    assert run(sandbox.wrap(["pwd"])).stdout.strip() == str(tmp_path)
