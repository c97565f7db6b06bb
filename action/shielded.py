"""Run a command that may execute code of the repository under test. Standard library only.

The command's environment has no tokens and none of the files by which a step steers later ones, and the runner
takes no commands from its output. This keeps honest code from harm by accident; it is no sandbox, since the
command runs as the same user.

    python shielded.py COMMAND [ARGUMENT...]
"""

from __future__ import annotations

import os
import secrets
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import FrameType

WITHHELD = frozenset(
    (
        "ACTIONS_CACHE_URL",
        "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
        "ACTIONS_ID_TOKEN_REQUEST_URL",
        "ACTIONS_RESULTS_URL",
        "ACTIONS_RUNTIME_TOKEN",
        "ACTIONS_RUNTIME_URL",
        "GH_TOKEN",
        "GITHUB_ENV",
        "GITHUB_OUTPUT",
        "GITHUB_PATH",
        "GITHUB_STATE",
        "GITHUB_STEP_SUMMARY",
        "GITHUB_TOKEN",
        # The action's own, except CGINS_CACHE_DIR, which the gate reads.
        "CGINS_ALLOW_WEAKER",
        "CGINS_BASELINE",
        "CGINS_FOLDER",
        "CGINS_PYTHON",
        "CGINS_REPORT",
    )
)


def environment_without_steering(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without `WITHHELD` and without the action's inputs."""
    return {
        name: value
        for name, value in environment.items()
        if name not in WITHHELD and not name.startswith("INPUT_")
    }


def run(words: Sequence[str], *, folder: str | None = None) -> int:
    """Run it in a folder and wait; a signal that ends it counts as 128 + its number, as in a shell."""
    token = secrets.token_hex(16)
    print(f"{shlex.join(words)}\n::stop-commands::{token}", flush=True)
    try:
        process = subprocess.Popen(words, cwd=folder, env=environment_without_steering(os.environ))

        def forward(number: int, _frame: FrameType | None) -> None:
            process.send_signal(number)

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, forward)
        code = process.wait()
    finally:
        # Its output may have ended in the middle of a line.
        print(f"\n::{token}::", flush=True)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
