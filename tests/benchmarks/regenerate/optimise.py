"""Kernels made faster by several policies, for real: prompts and answers go through files.

    python tests/benchmarks/regenerate/optimise.py --device cpu|cuda --work DIR [--python PYTHON] [--sandbox auto|off]
        [--policies P,…] [--sizes large|small] [--candidates P=N,…] [--rounds N] [--branches N] [--together] [--gpus N]
        [--finish] [--no-machine-code] [--no-last-gate] [--json FILE] [--markdown FILE] [--journals DIR]

The first call makes DIR/project, six kernels of the example with calls of sizes that fill a GPU, and gates it once, with
`torch.compile` as a rival. For each policy it makes DIR/POLICY, the same project with that policy's budget, begins a run
of all six kernels with what the gate had found, asks, and ends with exit code 7 and a list of the prompts that wait, below
DIR/exchange-POLICY. Whoever answers writes `answer.md` beside each (`cgins runs skill` says how). Each further call goes on
with all runs that have answers, and ends with 7 again while prompts wait. With all done the accepted sources are gated once
more, in fresh processes against the base revision, torch and `torch.compile`, and the tables are printed; it ends with 0.
A call that was killed is taken up by the next.

--together has the runs of a call go on at the same time: nobody verifies while another times, and with --gpus they have
one each. --finish answers what waits
with nothing, again and again, so that searches end with the best that they have.

DIR may be moved to another machine and back between calls, as a plain folder: journals have relative paths, and a
project's repository, if it was left behind, is made anew from its bundle. Only the cache of builds is elsewhere.
Needs pytest and what pytest-cgins needs, installed or on PYTHONPATH; no `cgins` on PATH.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import optimise_project as projects
from project import environment

CLI = "import sys; from pytest_cgins.app.cli import main; sys.exit(main(sys.argv[1:]))"
PLUGIN = ("-p", "no:cgins", "-p", "pytest_cgins.plugin", "-p", "no:randomly", "-p", "no:cacheprovider")
WAITING, ERROR = 7, 2
SETTINGS = "settings.json"
CANDIDATES = {"single-shot": 5, "refine": 5, "branch": 14, "evolve": 12, "mcts": 6}
"""Most answers a kernel, by policy."""
NOTHING = "There is no further answer: the search may end with what it has.\n"


def main() -> int:
    arguments = _arguments()
    work: Path = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    _settled(work, arguments)
    from optimise_runs import waiting

    if not (_begun(arguments, work) and _gone_on(arguments, work)):
        return ERROR
    left = waiting(work, arguments.policies)
    if not left and arguments.last_gate and not _gated_last(arguments, work):
        return ERROR
    _sum_up(arguments, work)
    if left:
        print(f"{len(left)} prompts wait for an answer.md beside them:")
        print("\n".join(map(str, left)))
        return WAITING
    return 0


def _begun(arguments: argparse.Namespace, work: Path) -> bool:
    """Have a run of each policy, from one gate; whether that was possible."""
    from optimise_runs import begin, of_policy

    started = time.monotonic()
    projects.recorded(work, arguments.python, arguments.sizes)
    projects.made(work, "project", projects.configuration(arguments.device))
    _told("recorded", started)
    gate = work / "gate.json"
    if not gate.exists() and not _gate(arguments, work / "project", gate, sandbox="off"):
        return False
    started = time.monotonic()
    for policy in arguments.policies:
        llm = projects.searched(policy, arguments.candidates[policy], arguments.rounds, arguments.branches)
        project = projects.made(work, policy, projects.configuration(arguments.device, llm))
        if of_policy(work, policy) is None:
            begin(project, gate, sandbox=arguments.sandbox != "off")
    _told("laid out", started)
    return True


def _gone_on(arguments: argparse.Namespace, work: Path) -> bool:
    """Go on with all runs that can; with `--finish` until they are done. Whether none ended with an error."""
    from optimise_runs import to_resume, waiting

    while True:
        codes = _resumed(arguments, work, to_resume(work, arguments.policies))
        if any(code not in (0, 1, WAITING) for code in codes):
            return False
        left = waiting(work, arguments.policies)
        if not (arguments.finish and left):
            return True
        for prompt in left:
            prompt.with_name("answer.md").write_text(NOTHING, encoding="utf-8")


def _gated_last(arguments: argparse.Namespace, work: Path) -> bool:
    """Gate what each policy's run accepted, in fresh processes; whether that was possible."""
    from optimise_runs import finished

    fence = "off" if arguments.sandbox == "off" else "on"
    wanted = [
        (report, names) for report, names in (finished(work, one) for one in arguments.policies) if names
    ]
    wanted = [(report, names) for report, names in wanted if not report.exists()]

    def gate(number: int) -> bool:
        """Every so many, one after the other: those of one GPU."""
        gpu = number if arguments.gpus > 1 else None
        done = [
            _gate(arguments, report.with_suffix(""), report, sandbox=fence, only=names, gpu=gpu)
            for report, names in wanted[number :: arguments.gpus]
        ]
        return all(done)

    with ThreadPoolExecutor(arguments.gpus) as threads:
        return all(list(threads.map(gate, range(arguments.gpus))))


def _sum_up(arguments: argparse.Namespace, work: Path) -> None:
    from optimise_outcome import document, markdown

    started = time.monotonic()
    found = document(work, arguments.policies, look=arguments.machine_code)
    _told("disassembled and summed up", started)
    text = markdown(found)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if arguments.markdown is not None:
        arguments.markdown.write_text(text, encoding="utf-8")
    if arguments.journals is not None:
        from optimise_journal import write

        write(work, arguments.policies, arguments.journals, found)
    print(text)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--work", type=Path, required=True, metavar="DIR")
    parser.add_argument("--python", default=sys.executable, help="for all processes (default: this one)")
    parser.add_argument("--sandbox", choices=("auto", "off"), default="auto", help="around candidates")
    parser.add_argument(
        "--policies", type=lambda text: text.split(","), default=["single-shot", "refine", "branch"]
    )
    parser.add_argument("--sizes", choices=("large", "small"), default="large", help="of the calls")
    parser.add_argument("--candidates", type=_numbers, default=CANDIDATES, metavar="POLICY=N,…")
    parser.add_argument("--rounds", type=int, default=2, help="of policy branch")
    parser.add_argument("--branches", type=int, default=3, help="of a round of policy branch")
    parser.add_argument("--together", action="store_true", help="runs go on at the same time")
    parser.add_argument("--gpus", type=int, default=1, help="over which the runs of a call are spread")
    parser.add_argument(
        "--finish", action="store_true", help="answer what waits with nothing, until all is done"
    )
    parser.add_argument(
        "--no-machine-code", dest="machine_code", action="store_false", help="do not disassemble"
    )
    parser.add_argument("--no-last-gate", dest="last_gate", action="store_false", help="do not gate what won")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument(
        "--journals", type=Path, metavar="DIR", help="a summary of each kernel's search by each policy"
    )
    return parser.parse_args()


def _numbers(text: str) -> dict[str, int]:
    pairs = (part.split("=") for part in text.split(","))
    return {**CANDIDATES, **{name: int(number) for name, number in pairs}}


def _settled(work: Path, arguments: argparse.Namespace) -> None:
    """Have what was asked for be as the first call had it."""
    file = work / SETTINGS
    names = ("device", "sandbox", "policies", "sizes", "candidates", "rounds", "branches")
    if not file.exists():
        file.write_text(json.dumps({name: getattr(arguments, name) for name in names}, indent=1) + "\n")
    for name, value in json.loads(file.read_text()).items():
        setattr(arguments, name, value)


def _gate(
    arguments: argparse.Namespace,
    project: Path,
    report: Path,
    *,
    sandbox: str,
    only: Sequence[str] = (),
    gpu: int | None = None,
) -> bool:
    """Gate a project, on one GPU of several; whether that was possible."""
    chosen = ["-k", " or ".join(only)] if only else []
    command = [
        arguments.python, "-m", "pytest", *PLUGIN, "-q", "--tb=short", "--cgins", *chosen,
        "--cgins-compare=compile", f"--cgins-json={report}", f"--cgins-sandbox={sandbox}",
    ]  # fmt: skip
    started = time.monotonic()
    code = subprocess.run(command, cwd=project, env={**environment(), **_only(gpu)}, check=False).returncode
    _told(f"gate of {project.name}: exit code {code}", started)
    return code in (0, 1)


def _resumed(arguments: argparse.Namespace, work: Path, wanted: Sequence[tuple[str, str]]) -> list[int]:
    """Go on with runs, by policy and name; their exit codes."""
    begun = []
    for number, (policy, name) in enumerate(wanted):
        command = [arguments.python, "-c", CLI, "runs", "resume", name]
        gpu = _only(number % arguments.gpus) if arguments.gpus > 1 else {}
        started = time.monotonic()
        with (work / f"{policy}.log").open("ab") as log:
            process = subprocess.Popen(
                command, cwd=work / policy, env={**environment(), **gpu}, stdout=log, stderr=subprocess.STDOUT
            )
        begun.append((policy, process, started))
        if not arguments.together:
            process.wait()
            _told(f"{policy}: exit code {process.returncode}", started)
    if arguments.together:
        for policy, process, started in begun:
            process.wait()
            _told(f"{policy}: exit code {process.returncode}", started)
    for policy, process, _ in begun:
        if process.returncode not in (0, 1, WAITING):
            print((work / f"{policy}.log").read_text(errors="replace")[-4000:], flush=True)
    return [process.returncode for _, process, _ in begun]


def _only(gpu: int | None) -> dict[str, str]:
    return {} if gpu is None else {"CUDA_VISIBLE_DEVICES": str(gpu)}


def _told(what: str, started: float) -> None:
    print(f"{what}, {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main())
