"""Starting the process that is profiled, from the side that imports no torch."""

from __future__ import annotations

import json
import secrets
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pytest_cgins import documents
from pytest_cgins.doctor import tools
from pytest_cgins.evaluate import worker_environment
from pytest_cgins.execute import environment
from pytest_cgins.execute.buffers import Buffer
from pytest_cgins.execute.sandbox.fence import Sandbox
from pytest_cgins.kernel_timing import request_sets
from pytest_cgins.model import Case, CompiledKernel

WARM_CALLS = 3
Mode = Literal["call", "range", "timeline"]
Around = Callable[[Sequence[str]], Sequence[str]]
# As for workers: our folder comes last, and the current one not at all.
_BOOT = (
    "import sys; sys.path[:1] == [''] and sys.path.pop(0); sys.path.append({root!r}); "
    "from pytest_cgins.profiling.runner import main; main({request!r})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """How a process went."""

    answer: dict[str, Any]
    """What it wrote; {} if it wrote nothing."""
    ran: tools.Ran
    """Status and output, those of a program around it included."""

    @property
    def trouble(self) -> str:
        """Why the kernel did not run, one line; "" if it did."""
        if "error" in self.answer:
            return str(self.answer["error"]).partition("\n")[0]
        if not self.answer:
            return self.ran.last_line
        return ""


class Child:
    """One kernel on one set of inputs, to be run in fresh processes.

    Args:
        folder: an existing folder of its own.
        case: what is run.
        compiled: its kernel.
        pair: a set of inputs, and its tensors' bytes.
        import_root: folder that the op's module is imported from.
        timeout_s: limit of one process.
        sandbox: put around the kernel's process and its profiler, which alone may write into the folder: what it
            reports is not the kernel's to write. None for none.
    """

    def __init__(
        self,
        folder: Path,
        case: Case,
        compiled: CompiledKernel,
        pair: tuple[Any, Buffer],
        *,
        import_root: Path,
        timeout_s: float,
        sandbox: Sandbox | None = None,
    ) -> None:
        self.folder = folder
        self._timeout_s = timeout_s
        self._sandbox = sandbox
        self._triton = folder / "triton"
        self._triton.mkdir()
        temporary = folder if sandbox is None else sandbox.for_tool(writable=folder).scratch
        # Numbers of ncu are written as the locale wants them.
        self._variables = {**worker_environment(), "LC_ALL": "C", "TMPDIR": str(temporary)}
        content = folder / "content"
        content.write_bytes(pair[1].view())
        self._request = {
            "kernel": documents.dump_python(compiled),
            "device": case.device,
            "import_root": str(import_root),
            "set": request_sets([pair])[0],
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

    def run(self, mode: Mode, *, around: Around = lambda command: command) -> Told:
        """Run it once.

        Args:
            mode: see `runner.main`.
            around: puts a profiler around the command.
        """
        token = secrets.token_hex(4)
        request, answer = self.folder / f"request-{token}.json", self.folder / f"answer-{token}.json"
        request.write_text(json.dumps({**self._request, "mode": mode, "answer": str(answer)}))
        boot = _BOOT.format(root=str(Path(__file__).resolve().parents[2]), request=str(request))
        variables = environment.worker_environment(token, self._variables)
        # `env -i`: what looks like a secret, or tells of a test, is not inherited.
        words = [f"{name}={value}" for name, value in variables.items()]
        command = [shutil.which("env") or "/usr/bin/env", "-i", *words]
        ran = tools.run(
            [*command, *self._fenced(around([sys.executable, "-u", "-c", boot]))],
            limit_s=self._timeout_s,
        )
        try:
            told = json.loads(answer.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            told = {}
        return Told(answer=told if isinstance(told, dict) else {}, ran=ran)

    def _fenced(self, command: Sequence[str]) -> Sequence[str]:
        return (
            command if self._sandbox is None else self._sandbox.for_tool(writable=self.folder).wrap(command)
        )
