"""Starting the process that is profiled, from the side that imports no torch."""

from __future__ import annotations

import json
import secrets
import shutil
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pytest_cgins.building.cache.store import default_cache
from pytest_cgins.config import Config
from pytest_cgins.core import documents
from pytest_cgins.doctor import tools
from pytest_cgins.gate.timing_stage import ReadyCase, TimingStage
from pytest_cgins.run import environment
from pytest_cgins.run.forking import PATH
from pytest_cgins.run.kernel_timing import request_sets
from pytest_cgins.run.sandbox.sandbox import Sandbox

WARM_CALLS = 3
POLL_S = 0.02
LIMIT_S = 300.0
"""Of one process."""
Mode = Literal["call", "range", "timeline", "plain"]
Around = Callable[[Sequence[str]], Sequence[str]]


def fence_for(config: Config, sandbox: Sandbox | None) -> Sandbox | None:
    """The sandbox around kernels of a project, which see its files and builds, but no traces."""
    if sandbox is None:
        return None
    return sandbox.around(visible=(config.root, default_cache()), hidden=config.traces)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildResult:
    """How a process went."""

    answer: dict[str, Any]
    """What it wrote; {} if it wrote nothing."""
    ran: tools.ProgramResult
    """Status and output, those of a program around it included."""

    @property
    def trouble(self) -> str:
        """Why the kernel did not run, one line; "" if it did."""
        if "error" in self.answer:
            return str(self.answer["error"]).partition("\n")[0]
        if not self.answer:
            return self.ran.last_line
        return ""


class StartedChild:
    """A process that was started, and stops before it does anything on the device.

    Args:
        command: what is run.
        answer: file that it will write.
        ready: file that it writes to when it has come so far.
        go: file that it waits for.
    """

    def __init__(self, command: Sequence[str], *, answer: Path, ready: Path, go: Path) -> None:
        self._answer, self._ready, self._go = answer, ready, go
        self._ran: list[tools.ProgramResult] = []
        self._thread = threading.Thread(
            target=lambda: self._ran.append(tools.run(command, limit_s=LIMIT_S)), daemon=True
        )
        self._thread.start()

    def alone(self, stage: TimingStage, device: str) -> ChildResult:
        """Once it is ready, or has ended, let it go on with the device to itself, and wait for its end."""
        while self._thread.is_alive() and not (self._ready.exists() and self._ready.stat().st_size):
            self._thread.join(POLL_S)
        with stage.alone_on(device):
            return self.go()

    def go(self) -> ChildResult:
        """Let it go on, and wait for its end."""
        self._go.touch()
        self._thread.join()
        try:
            told = json.loads(self._answer.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            told = {}
        return ChildResult(answer=told if isinstance(told, dict) else {}, ran=self._ran[0])


class Child:
    """One kernel on one set of inputs, to be run in fresh processes.

    Args:
        folder: an existing folder of its own.
        ready: what is run, on the first set of its inputs.
        import_root: folder that the op's module is imported from.
        sandbox: put around the kernel's process and its profiler, which alone may write into the folder: what it
            reports is not the kernel's to write. None for none.
    """

    def __init__(
        self, folder: Path, ready: ReadyCase, *, import_root: Path, sandbox: Sandbox | None = None
    ) -> None:
        self.folder = folder
        self._triton = folder / "triton"
        self._triton.mkdir()
        fence = None if sandbox is None else sandbox.for_tool(writable=folder)
        self._wrap: Around = list if fence is None else fence.wrap
        temporary = folder if fence is None else fence.scratch
        # Numbers of ncu are written as the locale wants them.
        self._variables = {"LC_ALL": "C", "TMPDIR": str(temporary)}
        content = folder / "content"
        inputs, buffer = ready.pairs[0]
        content.write_bytes(buffer.view())
        self._request = {
            "kernel": documents.dump_python(ready.compiled),
            "device": ready.case.device,
            "import_root": str(import_root),
            "set": documents.dump_python(request_sets([inputs])[0]),
            "content": str(content),
            "warm": WARM_CALLS,
            # A cache of its own: what lies in it afterwards is this kernel's machine code.
            "variables": {"TRITON_CACHE_DIR": str(self._triton)},
            "encloses": None if sandbox is None else [str(self._triton)],
        }

    @property
    def cubins(self) -> tuple[Path, ...]:
        """What Triton compiled in it."""
        return tuple(sorted(self._triton.rglob("*.cubin")))

    def begin(self, mode: Mode, *, around: Around = lambda command: command) -> StartedChild:
        """Start the process, which stops before it does anything on the device.

        Args:
            mode: see `runner.main`.
            around: puts a profiler around the command.
        """
        token = secrets.token_hex(4)
        request, answer = self.folder / f"request-{token}.json", self.folder / f"answer-{token}.json"
        ready, go = self.folder / f"ready-{token}", self.folder / f"go-{token}"
        places = {"answer": str(answer), "ready": str(ready), "go": str(go)}
        request.write_text(json.dumps({**self._request, "mode": mode, **places}))
        boot = f"{PATH}from pytest_cgins.regenerate.profiling.runner import main; main({str(request)!r})"
        variables = environment.worker_environment(token, self._variables)
        # `env -i`: what looks like a secret, or tells of a test, is not inherited.
        words = [f"{name}={value}" for name, value in variables.items()]
        command = [shutil.which("env") or "/usr/bin/env", "-i", *words]
        command += self._wrap(around([sys.executable, "-u", "-c", boot]))
        return StartedChild(command, answer=answer, ready=ready, go=go)
