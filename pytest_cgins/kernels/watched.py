"""Compilers that end with whoever has started them, even if that is killed.

The command runs under a shell that reads from a pipe in the background. This process alone has the pipe's other
end, so its death, however it comes, ends the reading, and the shell kills all of its session: ninja puts each job
into a process group of its own, and only the session finds them all. The system's own parent-death signal reaches
one process, not its compilers, and is sent when a thread ends.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

_SCRIPT = """
exec 9<&0 </dev/null
{
  read -r line <&9
  read -r own rest </proc/self/stat
  for pass in 1 2 3; do
    for place in /proc/[0-9]*; do
      { read -r pid name state parent group session rest <"$place/stat"; } 2>/dev/null || continue
      [ "$session" != $$ ] || [ "$pid" = "$own" ] || kill -KILL "$pid"
    done
  done
} >/dev/null 2>&1 &
watch=$!
exec 9<&-
"$@"
status=$?
kill -KILL $watch
exit $status
"""
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
        return ["/bin/sh", "-c", _SCRIPT, "sh", *command], _pipe[0]
