"""Starting the process that is profiled, from the side that imports no torch."""

from __future__ import annotations

import json
import secrets
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pytest_cgins import documents
from pytest_cgins.doctor import tools
from pytest_cgins.evaluate import worker_environment
from pytest_cgins.execute import environment
from pytest_cgins.execute.buffers import Buffer
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
        variables: added to the environment.
        timeout_s: limit of one process.
    """

    def __init__(
        self,
        folder: Path,
        case: Case,
        compiled: CompiledKernel,
        pair: tuple[Any, Buffer],
        *,
        import_root: Path,
        variables: Mapping[str, str],
        timeout_s: float,
    ) -> None:
        self.folder = folder
        self._timeout_s = timeout_s
        # Numbers of ncu are written as the locale wants them.
        self._variables = {**worker_environment(), "LC_ALL": "C", **variables}
        content = folder / "content"
        content.write_bytes(pair[1].view())
        self._request = {
            "kernel": documents.dump_python(compiled),
            "device": case.device,
            "import_root": str(import_root),
            "set": request_sets([pair])[0],
            "content": str(content),
            "warm": WARM_CALLS,
        }

    def run(
        self,
        mode: Mode,
        *,
        around: Around = lambda command: command,
        encloses: Sequence[Path] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> Told:
        """Run it once.

        Args:
            mode: see `runner.main`.
            around: puts a profiler, a sandbox or both around the command.
            encloses: folders that it may write to once it has fenced itself in, apart from the profiler; None if it
                need not.
            variables: added to the environment.
        """
        token = secrets.token_hex(4)
        request, answer = self.folder / f"request-{token}.json", self.folder / f"answer-{token}.json"
        folders = None if encloses is None else list(map(str, encloses))
        asked = {**self._request, "mode": mode, "answer": str(answer), "encloses": folders}
        request.write_text(json.dumps(asked))
        boot = _BOOT.format(root=str(Path(__file__).resolve().parents[2]), request=str(request))
        given = environment.worker_environment(token, {**self._variables, **(variables or {})})
        # `env -i`: what looks like a secret, or tells of a test, is not inherited.
        words = [f"{name}={value}" for name, value in given.items()]
        command = [shutil.which("env") or "/usr/bin/env", "-i", *words]
        ran = tools.run(
            [*command, *around([sys.executable, "-u", "-c", boot])],
            limit_s=self._timeout_s,
        )
        try:
            told = json.loads(answer.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            told = {}
        return Told(answer=told if isinstance(told, dict) else {}, ran=ran)
