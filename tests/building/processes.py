"""Processes in tests: Python code in one of its own, what became of one, and waiting for it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def until(what: Callable[[], object]) -> None:
    """Wait until something holds; it is a failure if it does not within 20 s."""
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def state(pid: int | str) -> str:
    """Letter of a process's state, "" if it is gone: T is stopped, Z ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def ended(*pids: int | str) -> bool:
    """Whether none of some processes runs any more."""
    return all(state(pid) in ("", "Z") for pid in pids)


def marked(folder: Path) -> list[str]:
    """Command lines of other living processes that name a folder, by /proc."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in words and int(place.name) != os.getpid():
            found.append(words)
    return found


def executable(file: Path, text: str = "") -> Path:
    """Write a program, in a folder that is made if it is not there."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
    return file


def python(
    code: str,
    *words: object,
    environment: Mapping[str, str] | None = None,
    check: bool = True,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, with variables beside those of this one; it must end well, unless not checked."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], env={**os.environ, **(environment or {})},
        capture_output=True, text=True, check=False, **options,
    )  # fmt: skip
    assert done.returncode == 0 or not check, done.stderr
    return done


@contextmanager
def holding(code: str, *words: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that has printed a line, and that line; at the end of the block its input is closed."""
    command = [sys.executable, "-c", code, *map(str, words)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
