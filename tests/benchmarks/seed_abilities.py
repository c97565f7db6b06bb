"""Rows of .github/SEED_SYSTEMS.md that were once partial: the commands of each, and what they print.

    python tests/benchmarks/seed_abilities.py [--row ROW ...] [--markdown PATH]

seed_abilities.txt has a transcript a row, typed into bash in a temporary project, on a CPU: `$` begins a command, `#` one that only
prepares and is not shown, `= N` says how it ends if not with 0, and each other line is a regular expression of what it promises to
print. The first line with each is shown. Models' answers are recorded, or a scripted server's on loopback. Exit code 1 if a promise
is not kept.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.regenerate.llm_server import LlmServer, Reply  # noqa: E402

SEARCH = ROOT / "example_project/conversations/search"
GELU = (SEARCH / "gelu-cpu-cpp/attempt-02/generator.md").read_text(encoding="utf-8")
"""A right one, with tanh in double."""
FILES = {
    "model.py": """\
import torch


def make():
    torch.manual_seed(0)
    layers = torch.nn.Linear(64, 64), torch.nn.GELU(approximate="tanh"), torch.nn.Linear(64, 10)
    return torch.nn.Sequential(*layers).eval(), torch.randn(32, 64)


if __name__ == "__main__":
    model, batch = make()
    with torch.no_grad():
        model(batch)
""",
    "cgins.yaml": "version: 1\ntraces: [traces/mlp]\nkernels: {}\n",
    "gelu.yaml": """\
version: 1
traces: [traces/mlp]
kernels:
  gelu:
    op: torch.nn.functional.gelu
    implementations: [{name: cpp, source: kernels/gelu.cpp}, {name: cuda, source: kernels/gelu.cu}]
""",
    "gelu.md": GELU,
    "in_double.cpp": GELU.partition("gelu.cpp\n")[2].partition("```")[0],
    "product.cu": 'extern "C" void solve(const float* A, const float* B, float* C, int M, int N) {}\n',
    "product.py": "import torch\n\nrtol, atol = 1e-3, 1e-5\n\n\ndef reference(A, B, C, M, N):\n    C[:] = torch.tanh(A * B)\n",
    "product.md": """\
```cpp kernels/product.cpp
// cgins: product(Tensor A, Tensor B, Tensor(a!) C, int M, int N) -> ()
#include <cgins.h>
#include <cmath>

constexpr int64_t kStep = STEP;

extern "C" int product(const DLTensor* A, const DLTensor* B, DLTensor* C, int64_t, int64_t, cgins_stream) {
  CGINS_CHECK(cgins::same_shape(A, B) && cgins::same_shape(A, C), "shapes differ");
  CGINS_CHECK(cgins::is_contiguous(A) && cgins::is_contiguous(B) && cgins::is_contiguous(C), "contiguous tensors only");
  return cgins::dispatch_floating(A, [&](auto zero) {
    using T = decltype(zero);
    const int64_t count = cgins::numel(A);
    for (int64_t first = 0; first < count; first += kStep)
      for (int64_t i = first; i < count && i < first + kStep; ++i)
        cgins::data<T>(C)[i] = T(std::tanh(double(cgins::data<T>(A)[i]) * double(cgins::data<T>(B)[i])));
    return 0;
  });
}
```
""",
}
INTRODUCTION = """\
Typed in a temporary project, without a GPU, by `tests/benchmarks/seed_abilities.py`; numbers are rows of `.github/SEED_SYSTEMS.md`. Of
each output stand the lines with what is promised. Answers of models are recorded or scripted. Tests named are below `tests/`.
"""
TRANSCRIPTS = Path(__file__).with_suffix(".txt")


@dataclass(frozen=True)
class Row:
    """What is promised, how it is shown, and what of it needs a GPU, with its test."""

    title: str
    steps: list[str]
    on_a_gpu: str
    shown: list[str] = field(default_factory=list)


def rows() -> dict[str, Row]:
    """By their numbers."""
    made = {}
    for text in TRANSCRIPTS.read_text(encoding="utf-8").split("## ")[1:]:
        head, _, rest = text.partition("\n")
        transcript, _, on_a_gpu = rest.partition("Needs a GPU: ")
        name, _, title = head.partition(" ")
        made[name] = Row(title, re.split(r"^(?=[$#] )", transcript, flags=re.MULTILINE), on_a_gpu.strip())
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    found = rows()
    parser.add_argument("--row", choices=found, action="append")
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    names = arguments.row or list(found)
    broken = [name for name in names if not kept(name, found[name])]
    if arguments.markdown and not broken:
        arguments.markdown.write_text(markdown({name: found[name] for name in names}), encoding="utf-8")
    return 1 if broken else 0


def kept(name: str, row: Row) -> bool:
    """Type a row's transcript and show what was promised; whether all of it was there."""
    print(f"\n## {name} {row.title}", flush=True)
    with tempfile.TemporaryDirectory(prefix="cgins-abilities-") as folder, LlmServer(answer_of()) as server:
        for file, text in FILES.items():
            (Path(folder) / file).write_text(text, encoding="utf-8")
        for step in filter(str.strip, row.steps):
            if told := missing(step, Path(folder), server.base_url, row.shown):
                print(told, file=sys.stderr)
                return False
    return True


def missing(step: str, folder: Path, server: str, shown: list[str]) -> str:
    """Run one command, and show it with the promised lines of its output; what is amiss, "" if nothing."""
    (command, *promised) = [line for line in step.splitlines() if line.strip()]
    code = int(promised.pop(0)[2:]) if promised and promised[0].startswith("= ") else 0
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("GITHUB_", "GH_"))}
    environment |= {"ROOT": str(ROOT), "SERVER": server, "COLUMNS": "160", "OMP_WAIT_POLICY": "passive"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command[2:]], cwd=folder, env=environment, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    lines = [line.rstrip() for line in done.stdout.replace(f"{folder.resolve()}/", "").splitlines()]
    places = [
        next((place for place, line in enumerate(lines) if re.search(one, line)), -1) for one in promised
    ]
    if done.returncode != code or -1 in places:
        absent = [one for one, place in zip(promised, places, strict=True) if place == -1]
        return f"{done.stdout}\n{command}\nended with {done.returncode}, not {code}, or lacks {absent}"
    if command.startswith("$"):
        ended = [f"(exit code {code})"] if code else []
        printed = [command, *(lines[place] for place in sorted(set(places))), *ended]
        print("\n".join(printed), flush=True)
        shown += printed
    return ""


def answer_of() -> Callable[[Any], Reply]:
    """A model: sure of all that it verifies, and each kernel that it writes is another right one."""
    numbers = itertools.count()

    def answer(asked: Any) -> Reply:
        if asked["model"] == "verifier":
            return Reply(text="compiles: 90%\nmemory: 90%\nnumbers: 90%")
        half = f"constexpr double kHalf = 0.5 + 0 * {next(numbers)};\n\nextern"
        return Reply(text=GELU.replace("extern", half, 1).replace("0.5 * v", "kHalf * v"))

    return answer


def markdown(shown: dict[str, Row]) -> str:
    """A page of what was typed and shown."""
    parts = [f"# Abilities that were once partial\n\n{INTRODUCTION}"]
    for name, row in shown.items():
        parts += [f"## {name} {row.title}\n", "```console", *row.shown, "```\n"]
        parts += [f"Needs a GPU: {row.on_a_gpu}\n"] if row.on_a_gpu else []
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
