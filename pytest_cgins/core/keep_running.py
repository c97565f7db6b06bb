"""Goes on with pytest's process where a kernel has stopped it (SIGSTOP): nothing else would, and a run would hang for ever.

Run by a trusted worker, in a thread. Where a shell has taken the terminal back, as after Ctrl-Z, a person sees it and
decides. A kernel that stops the trusted worker as well is not met: outside of a sandbox it may do all that its user may.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

LOOK_S = 1.0
LOOKS = 4
"""Looks in a row that must find the process stopped before it is continued: a debugger may stop it for a moment."""


def keep_running(pid: int, *, look_s: float = LOOK_S) -> threading.Thread:
    """Look after a process until it ends."""
    thread = threading.Thread(target=_look_after, args=(pid, look_s), name="cgins-resume", daemon=True)
    thread.start()
    return thread


def _look_after(pid: int, look_s: float) -> None:
    seen = 0
    while (stopped := _is_stopped(pid)) is not None:
        seen = seen + 1 if stopped else 0
        if seen >= LOOKS:
            seen = 0
            with suppress(OSError):
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
