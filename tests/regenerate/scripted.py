"""A run from which every answer is known: a tiny project whose kernels are wrong, and a model that plays its part.

Each kernel is repaired in the third attempt: the first answer cannot be built, the second has wrong numbers. What the
model says depends on nothing but the prompt, so a run that is killed and resumed must end as one that was left alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.regenerate.llm_server import Reply
from tests.regenerate.projects import committed

ROOT = Path(__file__).parents[2]
MARK = "CGINS_SCRIPTED_RUN"
"""Variable by which the processes of one run are known."""
EXECUTOR = "CGINS_SCRIPTED_EXECUTOR"
"""Variable with the `--cgins-executor` of a run."""
WRITER, ADVISER = "writer", "adviser"

RECORD = """\
import torch, pytest_cgins, tiny_ops
from torch.nn import functional
torch.manual_seed(0)
ops = ["torch.nn.functional.relu", "torch.nn.functional.threshold", "tiny_ops.scaled"]
with pytest_cgins.record("traces/tiny", ops=ops):
    functional.relu(torch.randn(2, 3))
    functional.threshold(torch.randn(3, 5), 0.1, 20.0)
    tiny_ops.scaled(torch.randn(5, 4))
"""
OPS = """\
import pytest_cgins

@pytest_cgins.mark
def scaled(x):
    return x * 2.0
"""
YAML = """\
version: 1
traces: [traces/tiny]
kernels:
  relu: {op: torch.nn.functional.relu, source: kernels/relu.cpp}
  threshold: {op: torch.nn.functional.threshold, source: kernels/threshold.cpp}
  scaled: {op: tiny_ops.scaled, device: cpu, target: 'kernels.scaled:scaled', sources: [kernels/scaled.py]}
llm:
  provider: compatible
  base_url: URL
  models: {generator: writer, helper: adviser}
  max_answer_tokens: 2000
  budget: {side_by_side: 1}
  prices: {writer: {input: 3, output: 15}, adviser: {input: 1, output: 5}}
"""
_CPP = """\
// cgins: NAME(Tensor input, SCHEMA, bool inplace=False) -> Tensor
// draft %d
#include <cgins.h>

extern "C" int NAME(const DLTensor* input, PROTOTYPE, bool, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(input), "contiguous tensors only");
  const float* x = cgins::data<float>(input);
  float* y = cgins::data<float>(out);
  for (int64_t i = 0; i < cgins::numel(input); ++i) y[i] = %s;
  return 0;
}
"""
_RELU = _CPP.replace("NAME", "relu").replace(" SCHEMA,", "").replace(" PROTOTYPE,", "")
_THRESHOLD = (
    _CPP.replace("NAME", "threshold")
    .replace("SCHEMA", "float threshold, float value")
    .replace("PROTOTYPE", "double threshold, double value")
)
_SCALED = '"""Draft."""\n# draft %d\n\n\ndef scaled(x):\n    return %s\n'

KERNELS: Mapping[str, tuple[str, str, Sequence[str]]] = {
    "relu": ("kernels/relu.cpp", _RELU, ("-x[i]", "x[i] < ? 0", "x[i] < 0 ? 1 : x[i]", "x[i] < 0 ? 0 : x[i]")),
    "threshold": (
        "kernels/threshold.cpp",
        _THRESHOLD,
        ("x[i]", "x[i] <= ? value", "float(value)", "x[i] <= threshold ? float(value) : x[i]"),
    ),
    "scaled": ("kernels/scaled.py", _SCALED, ("x", "(x +", "x + x + x", "x + x")),
}  # fmt: skip
"""Path, text and the drafts that are put into it: as it is in the project, and as answered first, second and third."""


def draft(kernel: str, number: int) -> str:
    """A kernel's source; 0 is the one of the project."""
    _, text, expressions = KERNELS[kernel]
    return text % (number, expressions[number])


class Script:
    """What the model answers, and what it was asked.

    Args:
        hang_s: before each answer.
        stall_s: in the middle of each.
        first: draft that the first answer has.
    """

    def __init__(self, hang_s: float = 0.0, stall_s: float = 0.0, first: int = 1) -> None:
        self.hang_s, self.stall_s, self.first = hang_s, stall_s, first
        self.go_on = threading.Event()
        """Cleared to have answers wait."""
        self.go_on.set()
        self.asked: list[tuple[str, str]] = []
        """Digest of each prompt, in the order in which they came, and whom it is for."""
        self._lock = threading.Lock()

    def __call__(self, asked: Any) -> Reply:
        words = "\n".join(message["content"] for message in asked["messages"])
        with self._lock:
            self.asked.append((_digest(json.dumps(asked["messages"])), asked["model"]))
        drafts = [int(number) for number in re.findall(r"(?://|#) draft (\d)", words)]
        kernel = next(name for name, (path, _, _) in KERNELS.items() if path in words)
        number = drafts[-1]
        text = _advice(number) if asked["model"] == ADVISER else _answer(kernel, max(number + 1, self.first))
        self.go_on.wait(60.0)
        usage = {"prompt_tokens": len(words), "completion_tokens": len(text)}
        return Reply(
            text=text,
            hang_s=self.hang_s,
            stall_s=self.stall_s,
            usage={**usage, "total_tokens": sum(usage.values())},
        )

    @property
    def repeated(self) -> int:
        """How many requests came that had come before."""
        return len(self.asked) - len(Counter(self.asked))


def _answer(kernel: str, number: int) -> str:
    path = KERNELS[kernel][0]
    return f"The expression was wrong.\n\n```cpp {path}\n{draft(kernel, number)}```\n"


def _advice(number: int) -> str:
    return (
        f"Look at the expression of draft {number}.\n\nDo not repeat:\n- the expression of draft {number}\n"
    )


def recorded(folder: Path) -> Path:
    """The project with its trace pack, without a repository; made once."""
    for name, text in {"record.py": RECORD, "tiny_ops.py": OPS, "kernels/__init__.py": ""}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    subprocess.run([sys.executable, "record.py"], cwd=folder, check=True)
    (folder / "record.py").unlink()
    return folder


def project(recorded: Path, folder: Path, base_url: str) -> Path:
    """A project of its own, committed, that asks a server."""
    shutil.copytree(recorded, folder, ignore=shutil.ignore_patterns("__pycache__"))
    files = {path: draft(kernel, 0) for kernel, (path, _, _) in KERNELS.items()}
    return committed(
        folder, {"cgins.yaml": YAML.replace("URL", base_url), ".gitignore": ".cgins/\n", **files}
    )


_BEGIN = """\
import sys
sys.path.insert(0, sys.argv[1])
from tests.regenerate.scripted import drive
sys.exit(drive(sys.argv[2:]))
"""


_RESUME = """\
import sys
sys.path.insert(0, sys.argv.pop(1))
from tests.regenerate.scripted import die_if_told
die_if_told()
from pytest_cgins.app.cli import main
sys.exit(main())
"""
DIE = "CGINS_SCRIPTED_DIE"
"""`accepted`: the process kills itself once a candidate is accepted, before that is proposed."""


def die_if_told() -> None:
    """Have this process kill itself at the moment that its environment names."""
    if os.environ.get(DIE) == "accepted":
        from pytest_cgins.regenerate import run

        def die(*_: object) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        run.proposed = die  # type: ignore[assignment]


def drive(kernels: Sequence[str]) -> int:
    """Repair kernels of the project in the current folder, as `pytest --cgins-regenerate` does after its tests."""
    from pytest_cgins import config
    from pytest_cgins.building.revision.merge_base import NONE
    from pytest_cgins.regenerate import run, run_setup, targets
    from pytest_cgins.regenerate.project_copy import head

    loaded = config.load(Path("cgins.yaml").absolute())
    wanted = [
        targets.target_of(entry, entry.implementations[0], "repair")
        for entry in loaded.kernels
        if entry.name in kernels
    ]
    settings = run_setup.settings_of(loaded, run_setup.RunOptions())
    executor = os.environ.get(EXECUTOR, "")
    record = {
        "executor": executor,
        "seed": 7,
        "baseline": NONE,
        "base_commit": head(loaded.root),
        "timing": False,
    }
    with run.begin(loaded, settings, wanted, (), record=record) as journal:
        return run_setup.exit_code(
            run_setup.carry_out(journal, loaded, settings, sandbox=run_setup.sandbox_of("auto"))
        )


def begin(folder: Path, kernels: Sequence[str], **more: Any) -> subprocess.Popen[bytes]:
    """A process, in a session of its own, that begins a run in a project."""
    return started([sys.executable, "-c", _BEGIN, str(ROOT), *kernels], folder, **more)


def resume(folder: Path, run: str = "", **more: Any) -> subprocess.Popen[bytes]:
    """A process, in a session of its own, that goes on with the newest run of a project, or with a named one."""
    return started(
        [sys.executable, "-c", _RESUME, str(ROOT), "runs", "resume", *filter(None, [run])], folder, **more
    )


def started(
    command: Sequence[str], folder: Path, *, log: Path, env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """A process in a session of its own, which prints into a log."""
    # What a shell has in the background ignores SIGINT, and so does all that it starts.
    heeding = ["env", "--default-signal=INT", *command]
    with log.open("ab") as file:
        return subprocess.Popen(
            heeding,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


def processes(mark: str) -> dict[int, str]:
    """Living processes of a run, with their command lines."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}\0".encode() in (place / "environ").read_bytes():
                found[int(place.name)] = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


def is_courier(command: str) -> bool:
    """Whether a command line is the courier's."""
    return "provider.courier" in command


def ending(run: Path) -> dict[str, Any]:
    """What a run came to, without what differs from run to run: times, seeds, names of folders."""
    from pytest_cgins.regenerate import run_status
    from pytest_cgins.regenerate.journal.journal import Journal

    journal = Journal.read_only(run)
    spent = run_status.spent_on(journal)
    return {
        "targets": {target.name: _of_target(journal, target) for target in journal.record.targets},
        "proposals": {place.name: _of_proposal(place) for place in sorted((run / "proposals").iterdir())},
        "prompts": sorted(
            f"{request.id} {_digest(json.dumps([[one.role, one.text] for one in request.messages]))}"
            for request, _ in journal.answered()
        ),
        "spent": [spent.requests, spent.prompt_tokens, spent.answer_tokens, round(spent.usd, 9)],
        "files": sorted(str(file.relative_to(run)) for file in run.rglob("*") if file.is_file()),
    }


def _of_target(journal: Any, target: Any) -> dict[str, Any]:
    result = journal.result(target)
    assert result is not None, f"{target.name} is not done"
    attempts = journal.attempts(target)
    return {
        "state": result.state,
        "why": result.why,
        "attempts": [[one.number, one.outcome, one.reason, one.digest, one.message] for one in attempts],
        "advice": [getattr(journal.advice(target, one.number), "text", None) for one in attempts],
        "texts": {
            str(file.relative_to(journal.folder)): _digest(file.read_text())
            for folder in ("attempt-*/source", "attempt-*/*/answer.md", "final", "FAILED", "incumbent")
            for place in (journal.folder / target.name).glob(folder)
            for file in ([place] if place.is_file() else place.rglob("*"))
            if file.is_file()
        },
    }


def _of_proposal(place: Path) -> dict[str, Any]:
    about = json.loads((place / "proposal.json").read_text())
    kept = (
        "target",
        "goal",
        "title",
        "base_digests",
        "files",
        "patch_digest",
        "attempts",
        "models",
        "sandbox",
    )
    cost = {name: about["cost"][name] for name in ("prompt_tokens", "answer_tokens", "usd", "estimated")}
    return {
        **{name: about[name] for name in kept},
        "cost": cost,
        "patch": _digest((place / "patch.diff").read_text()),
    }


def differences(one: Any, other: Any, at: str = "") -> list[str]:
    """Where two endings differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = sorted({*one, *other})
        return [
            line for name in names for line in differences(one.get(name), other.get(name), f"{at}/{name}")
        ]
    if isinstance(one, list) and isinstance(other, list) and at in ("/files", "/prompts"):
        extra = [f"{at}: only then: {name}" for name in other if name not in one]
        return extra + [f"{at}: not then: {name}" for name in one if name not in other]
    return [] if one == other else [f"{at}: {one!r} is {other!r}"]


def judged_differently(one: Any, other: Any) -> list[str]:
    """Where two endings differ, prompts and their length apart: they have what was measured of the machine, anew each time."""
    return [
        line
        for line in differences(one, other)
        if not line.startswith(("/prompts", "/spent")) and "/cost/" not in line
    ]


def until(done: Callable[[], bool], limit_s: float) -> bool:
    """Wait for something; whether it came."""
    ends = time.monotonic() + limit_s
    while not done():
        if time.monotonic() > ends:
            return False
        time.sleep(0.02)
    return True


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
