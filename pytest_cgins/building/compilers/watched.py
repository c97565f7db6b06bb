"""Compilers that end with whoever has started them, even if that is killed.

The command runs under a shell that reads from a pipe in the background. This process alone has the pipe's other
end, so its death, however it comes, ends the reading, and the shell kills all of its session: ninja puts each job
into a process group of its own, and only the session finds them all. The system's own parent-death signal reaches
one process, not its compilers, and is sent when a thread ends.

A source can have its compiler read without end (`#include "/dev/zero"`) or write without end: what each process of a
command may take of memory, and write to one file, is limited.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from pytest_cgins.core.errors import InfrastructureError

MEMORY_VARIABLE = "CGINS_COMPILER_MEMORY"
MEMORY_GIB = 16
"""What one compiler may take unless the variable says another number; large templates for CUDA need ten."""
LEAST_MEMORY_GIB = 4
FILE_NBYTES = 2 << 30
_SCRIPT = Path(__file__).with_suffix(".sh").read_text(encoding="utf-8")
_BLOCK_NBYTES = 512
"""In which a shell counts the size of a file."""
_lock = threading.Lock()
_pipe: list[int] = []
_owner = 0


def watched(command: Sequence[str]) -> tuple[list[str], int]:
    """A command to start in a session of its own, and the descriptor that it takes as standard input."""
    global _owner  # noqa: PLW0603 - a forked child needs a pipe of its own
    with _lock:
        if _owner != os.getpid():
            _pipe[:] = os.pipe()
            _owner = os.getpid()
        limits = (
            f"ulimit -S -c 0; ulimit -S -v {memory_gib() << 20}; ulimit -f {FILE_NBYTES // _BLOCK_NBYTES}"
        )
        return ["/bin/sh", "-c", f"{{ {limits}; }} 2>/dev/null\n{_SCRIPT}", "sh", *command], _pipe[0]


def memory_gib() -> int:
    """GiB of memory that one compiler may take: no more than three quarters of the machine's, if that is enough for most.

    Raises:
        InfrastructureError: the variable is not a number.
    """
    named = os.environ.get(MEMORY_VARIABLE, "").strip()
    if named and not named.isdecimal():
        raise InfrastructureError(
            f"{MEMORY_VARIABLE} is {named!r}, which is not a number of GiB",
            remedy=f"write {MEMORY_GIB}, or unset it",
        )
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 3 // 4 >> 30
    return int(named) if named else max(LEAST_MEMORY_GIB, min(MEMORY_GIB, whole))
