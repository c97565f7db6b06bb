"""Broken kernels repaired and new ones written, for real: prompts and answers go through files.

    python tests/benchmarks/regenerate/regenerate.py --device cpu|cuda --work DIR [--python PYTHON] [--sandbox auto|off]
        [--time-repairs] [--json FILE] [--markdown FILE]

The first call makes DIR/project: the example project with a pack of new ops, all kernels right in its one commit, and
the bugs of broken.yaml in the working tree. It gates them with `--cgins-regenerate`, asks for kernels for ops that have
none, and ends with exit code 7 and a list of the prompts that wait, below DIR/exchange-repair and
DIR/exchange-generate. Whoever answers writes `answer.md` beside each (`cgins runs skill` says how). Each further call
goes on with the runs that have answers, and ends with 7 again while prompts wait. With all targets done it prints the
table, and ends with 0 if all were accepted, else with 1. A call that was killed is taken up by the next.

DIR may be moved to another machine and back between calls, as a plain folder: journals have relative paths, and the
project's repository, if it was left behind, is made anew from DIR/project.bundle. Only the cache of builds is elsewhere.
Needs pytest and what pytest-cgins needs, installed or on PYTHONPATH; no `cgins` on PATH, and no file DIR/python-notes.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

from bugs import bugs
from project import environment, make

CLI = "import sys; from pytest_cgins.app.cli import main; sys.exit(main(sys.argv[1:]))"
WAITING, ERROR = 7, 2
STEPS = "steps.json"
RUNS = ".cgins/runs"
_TORCH = "torch.nn.functional."
_OWN = ("models.fused.bias_gelu_residual", "models.fused.SqueezeExcite")
GENERATED = {
    "cpu": {
        ("cpp",): (
            f"{_TORCH}group_norm",
            f"{_TORCH}avg_pool2d",
            f"{_TORCH}silu",
            f"{_TORCH}silu@backward(input)",
            *_OWN,
        ),
    },
    "cuda": {
        ("cuda",): (f"{_TORCH}group_norm", f"{_TORCH}avg_pool2d", f"{_TORCH}silu@backward(input)", *_OWN),
        ("cuda", "--contract", "device"): (f"{_TORCH}log_softmax",),
        ("triton",): (f"{_TORCH}silu",),
    },
}
"""Ops by device and by the form in which they are asked for."""


def main() -> int:
    arguments = _arguments()
    work: Path = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    planted = bugs(arguments.device)
    project = make(work, planted, arguments.python)
    steps = _steps(work, arguments)

    from outcome import document, journals, markdown, prompts

    from pytest_cgins.regenerate import run_status

    runs = project / RUNS
    for step in steps:
        if not any(shlex.split(one.record.command)[1:] == step[2:] for one in journals(runs)):
            code = _run([arguments.python, *step], project)
            if code not in (0, 1, WAITING):
                return ERROR
    for journal in journals(runs):
        state = run_status.state_of(journal)
        answered = any(prompt.with_name("answer.md").exists() for prompt in prompts(journal))
        if state == "stopped" or (state == "waiting" and answered):
            code = _run([arguments.python, "-c", CLI, "runs", "resume", journal.record.id], project)
            if code not in (0, 1, WAITING):
                return ERROR

    found = document(runs, {bug.target: bug.kind for bug in planted})
    text = markdown(found)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if arguments.markdown is not None:
        arguments.markdown.write_text(text, encoding="utf-8")
    print(text)
    waiting = [prompt for journal in journals(runs) for prompt in prompts(journal)]
    if waiting:
        print(f"{len(waiting)} prompts wait for an answer.md beside them:")
        print("\n".join(map(str, waiting)))
        return WAITING
    return 0 if all(row["state"] == "accepted" for row in found["targets"]) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--work", type=Path, required=True, metavar="DIR")
    parser.add_argument("--python", default=sys.executable, help="for all processes (default: this one)")
    parser.add_argument("--sandbox", choices=("auto", "off"), default="auto", help="around candidates")
    parser.add_argument("--time-repairs", action="store_true", help="repairs are timed against the base, too")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    return parser.parse_args()


def _steps(work: Path, arguments: argparse.Namespace) -> list[list[str]]:
    """What each run is begun with, behind Python; as the first call had it."""
    file = work / STEPS
    if not file.exists():
        file.write_text(json.dumps([_gate(arguments), *_generate(arguments)], indent=1) + "\n")
    found: list[list[str]] = json.loads(file.read_text())
    return found


def _gate(arguments: argparse.Namespace) -> list[str]:
    # A bug's own source alone is asked for, so that the gate has no more to do than it must.
    cases = " or ".join(bug.expression for bug in bugs(arguments.device))
    plugin = ["-p", "no:cgins", "-p", "pytest_cgins.plugin", "-p", "no:randomly", "-p", "no:cacheprovider"]
    return [
        "-m", "pytest", *plugin, "-q", "--tb=no", "-rN", "--cgins", "-k", cases, "--cgins-regenerate=failed",
        "--cgins-llm=exchange:../exchange-repair", "--cgins-pr=off", f"--cgins-sandbox={arguments.sandbox}",
        *([] if arguments.time_repairs else ["--cgins-no-timing"]),
    ]  # fmt: skip


def _generate(arguments: argparse.Namespace) -> list[list[str]]:
    asked = ["--cgins-llm=exchange:../exchange-generate", f"--cgins-sandbox={arguments.sandbox}"]
    return [
        ["-c", CLI, "generate", *ops, "--implementation", *form, *asked]
        for form, ops in GENERATED[arguments.device].items()
    ]


def _run(command: list[str], project: Path) -> int:
    started = time.monotonic()
    code = subprocess.run(command, cwd=project, env=environment(), check=False).returncode
    print(f"exit code {code} after {time.monotonic() - started:.0f} s", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
