"""Candidates a minute of a search whose model answers at once, and an A/A: none of its kernels is faster.

    python tests/benchmarks/regenerate/throughput.py --device cpu|cuda [--candidates N] [--policy branch] [--branches N]
        [--broken-every N] [--latency S] [--side-by-side N] [--ahead] [--no-profiles] --work DIR [--sandbox auto|off] [--json FILE] [--markdown FILE]

The project is made in DIR: softmax of the example project as a launcher, softmax.cpp or softmax.cu, with two cases of its
own, 512 × 1024 and 4 × 12 × 128 × 128 in float32. Each answer is the incumbent with its local variables renamed, each
time otherwise, so it is another source and the same kernel. It is right, and none of it may be accepted as faster. One
search asks for all (with --broken-every N each Nth names a variable in device code that is not there, and is no
right one), --branches at a time with policy `branch`, and the clock runs from its first question to its result.
The build cache is in DIR and begins empty; the worker that knows the answers is started within that time. With
--no-profiles no profiler is asked: what is left is building, checking and timing.

With --latency the model thinks for S seconds over each question, over any number at the same time; with --side-by-side
policies `refine` and `mcts` ask for N at once, and with --ahead the run takes the model for a server, which `mcts` and
`evolve` ask for the next candidates before the last are tried.

The table has two columns. Wall: what the search itself was at, which adds up to the whole. Busy: what the journal has of
all candidates together, those that are tried side by side counted each. Answers come from within the process, without a
network, and no package of a provider is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from project import EXAMPLE, REPOSITORY, environment

from pytest_cgins import config as configuration
from pytest_cgins.building.revision.merge_base import NONE
from pytest_cgins.config.llm import Budget, LlmSettings
from pytest_cgins.core import documents
from pytest_cgins.core.options import POLICIES
from pytest_cgins.gate.calibration import Calibrations
from pytest_cgins.gate.timing_stage import TimingOptions
from pytest_cgins.regenerate import run, run_setup, static_check, targets
from pytest_cgins.regenerate.attempt import Result
from pytest_cgins.regenerate.conversation import Answer, Request, Usage
from pytest_cgins.regenerate.journal.journal import Journal
from pytest_cgins.regenerate.judgement import GuardedFiles
from pytest_cgins.regenerate.progress import Event
from pytest_cgins.regenerate.project_copy import head
from pytest_cgins.regenerate.search import policies
from pytest_cgins.regenerate.search.policy import Policy
from pytest_cgins.run import visible_gpus

SOURCES = {"cpu": "kernels/softmax.cpp", "cuda": "kernels/softmax.cu"}
LOCALS = ("largest", "sum", "x", "y", "row", "rows", "in_zero", "out_zero")
"""Names in the sources that mean nothing elsewhere."""
RECORD = """\
import torch, pytest_cgins
from torch.nn import functional
torch.manual_seed(0)
with pytest_cgins.record("traces/softmax", ops=["torch.nn.functional.softmax"]):
    functional.softmax(torch.randn(512, 1024), dim=-1)
    functional.softmax(torch.randn(4, 12, 128, 128), dim=-1)
"""
YAML = """\
version: 1
traces: [traces/softmax]
kernels:
  softmax: {op: torch.nn.functional.softmax, source: SOURCE}
"""


class Renamed:
    """A model that answers at once, with the incumbent under other names.

    Args:
        path: of the source.
        text: the incumbent.
        broken_every: each such answer does not compile; 0 is none.
        latency_s: from a question to its answer.
    """

    def __init__(self, path: str, text: str, broken_every: int, latency_s: float) -> None:
        self._path, self._text, self._broken_every, self._latency_s = path, text, broken_every, latency_s
        self._asked: dict[str, float] = {}
        self.seconds = 0.0

    def ask(self, request: Request, place: Path) -> Answer | None:
        """See `Provider`."""
        del place
        started = time.monotonic()
        if started < self._asked.setdefault(request.id, started) + self._latency_s:
            return None
        number = int(request.id.split("/attempt-")[1].partition("/")[0])
        names = "|".join(LOCALS)
        text = re.sub(rf"(?<!\.)\b({names})\b(?!\.h)", rf"\g<1>_{number}", self._text)
        if self._broken_every and number % self._broken_every == 0:
            text = text.replace(f"sum_{number} +=", "undefined +=", 1)
        seconds = time.monotonic() - started
        self.seconds += seconds
        return Answer(
            text=f"```cpp {self._path}\n{text}```\n", finish="stop", model="renamed", seconds=seconds,
            usage=Usage(prompt_tokens=1, cached_tokens=0, answer_tokens=1, usd=None),
        )  # fmt: skip

    def wait(self, timeout_s: float) -> bool:
        """See `Provider`."""
        time.sleep(min(timeout_s, 0.05))
        return self._latency_s > 0

    def close(self) -> None:
        """Nothing is open."""


class Stages:
    """Where the wall time of one search goes: from each of its events to the next."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.began = 0.0
        self._stage, self._since = "", 0.0

    def __call__(self, event: Event) -> None:
        """Told by the search."""
        now = time.monotonic()
        if self._stage:
            self.seconds[self._stage] += now - self._since
        self.began = self.began or now
        self._stage, self._since = event.stage, now


class Watch:
    """How long some functions of the product take, all their calls together."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    def over(self, name: str, owner: Any, *functions: str) -> None:
        """Watch functions of a module or class, under one name."""
        for function in functions:
            setattr(owner, function, self._watched(name, getattr(owner, function)))

    def _watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*given: Any, **named: Any) -> Any:
            started = time.monotonic()
            try:
                return function(*given, **named)
            finally:
                self.seconds[name] += time.monotonic() - started

        return watched


def main() -> int:
    arguments = _arguments()
    work: Path = arguments.work.resolve()
    project = _project(work, arguments.device)
    shutil.rmtree(work / "cache", ignore_errors=True)
    os.environ["CGINS_CACHE_DIR"] = str(work / "cache")
    loaded = configuration.load(project / "cgins.yaml")
    (entry,) = loaded.kernels
    target = targets.target_of(entry, entry.implementations[0], "optimise")
    settings = _settings(arguments, project)
    source = SOURCES[arguments.device]
    text = (project / source).read_text()
    model, stages = Renamed(source, text, arguments.broken_every, arguments.latency), Stages()
    watch = Watch()
    watch.over("static check", static_check, "check")
    watch.over("journal", Journal, "keep_attempt", "keep_answer", "keep_evidence", "place")
    watch.over("goalposts", GuardedFiles, "require")
    run.of_settings = lambda *_, **__: model  # type: ignore[assignment]
    if arguments.no_profiles:
        policies.policy = _without_profiles(policies.policy)
    record = {"seed": 7, "baseline": NONE, "base_commit": head(loaded.root)}
    with run.begin(loaded, settings, [target], (), record=record) as journal:
        conditions = run.Conditions(
            sandbox=run_setup.sandbox_of(arguments.sandbox), noise=TimingOptions(noise=Calibrations().noise),
            on_event=stages,
        )  # fmt: skip
        began = time.monotonic()
        (result,) = run.Run(journal, loaded, settings, conditions).work().results
        whole_s = time.monotonic() - began
        found = _found(
            journal, result, stages, {"the model": model.seconds, **watch.seconds}, whole_s, arguments
        )
    text = markdown(found)
    for place, content in ((arguments.json, json.dumps(found, indent=1) + "\n"), (arguments.markdown, text)):
        if place is not None:
            place.write_text(content, encoding="utf-8")
    print(text)
    broken = found["candidates"] // arguments.broken_every if arguments.broken_every else 0
    return 0 if found["accepted"] == 0 and found["right"] == found["candidates"] - broken else 1


def _without_profiles(policy: Callable[..., Policy]) -> Callable[..., Policy]:
    """The same policies, that show nothing of profilers."""

    def made(*given: Any) -> Policy:
        found = policy(*given)
        asks = found.next
        found.next = lambda tree: tuple(  # type: ignore[method-assign]
            replace(ask, shows_evidence=False) for ask in asks(tree)
        )
        return found

    return made


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=tuple(SOURCES), required=True)
    parser.add_argument("--candidates", type=int, default=200)
    parser.add_argument("--policy", choices=POLICIES, default="branch")
    parser.add_argument("--branches", type=int, default=4, help="candidates a round of policy branch")
    parser.add_argument("--broken-every", type=int, default=0, metavar="N", help="each Nth does not compile")
    parser.add_argument("--latency", type=float, default=0.0, metavar="S", help="that the model thinks")
    parser.add_argument("--side-by-side", type=int, default=1, metavar="N", help="that are asked for at once")
    parser.add_argument("--ahead", action="store_true", help="ask before the last are tried")
    parser.add_argument("--no-profiles", action="store_true", help="ask no profiler")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR")
    parser.add_argument("--sandbox", choices=("auto", "off"), default="auto", help="around candidates")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    return parser.parse_args()


def _settings(arguments: argparse.Namespace, project: Path) -> LlmSettings:
    count: int = arguments.candidates
    budget = Budget(
        candidates=count, rounds=count, branches=arguments.branches, side_by_side=arguments.side_by_side,
        generations=count, tokens=None, minutes=None,
    )  # fmt: skip
    return LlmSettings(
        provider="compatible" if arguments.ahead else "replay",
        path=project,
        policy=arguments.policy,
        budget=budget,
        runs=project / ".cgins/runs",
    )


def _project(work: Path, device: str) -> Path:
    """The project, made if it is not there yet, and committed."""
    project = work / f"project-{device}"
    if not (project / ".git").is_dir():
        shutil.rmtree(project, ignore_errors=True)
        shutil.copytree(
            EXAMPLE / "kernels", project / "kernels", ignore=shutil.ignore_patterns("*.py", "__pycache__")
        )
        (project / "cgins.yaml").write_text(YAML.replace("SOURCE", SOURCES[device]), encoding="utf-8")
        (project / ".gitignore").write_text(".cgins/\n", encoding="utf-8")
        subprocess.run([sys.executable, "-c", RECORD], cwd=project, env=environment(), check=True)
        identity = ("-c", "user.name=benchmark", "-c", "user.email=benchmark@localhost")
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "softmax")):
            subprocess.run(["git", *identity, *words], cwd=project, check=True)
    return project


def _found(
    journal: Journal,
    result: Result,
    stages: Stages,
    watched: dict[str, float],
    whole_s: float,
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    """What the run came to, as JSON."""
    attempts = result.attempts
    trials = [trial for one in attempts for trial in one.trials]
    measurements = [
        one.measurement for trial in trials for one in trial.evaluations if one.measurement is not None
    ]
    wall = {**stages.seconds}
    total_s = sum(wall.values())
    commit = subprocess.run(
        ["git", "-C", REPOSITORY, "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    environments = {
        json.dumps(documents.dump_python(one)): one for trial in trials for one in trial.environments
    }
    return {
        "commit": commit.stdout.strip(),
        "policy": arguments.policy,
        "branches": arguments.branches,
        "profiles": not arguments.no_profiles,
        "broken_every": arguments.broken_every,
        "latency_seconds": arguments.latency,
        "side_by_side": arguments.side_by_side,
        "ahead": arguments.ahead,
        "device": arguments.device,
        "gpus": len(visible_gpus.usable(os.environ.get(visible_gpus.VARIABLE), visible_gpus.list_gpus())),
        "sandbox": arguments.sandbox,
        "cores": len(os.sched_getaffinity(0)),
        "environments": [documents.dump_python(one) for one in environments.values()],
        "cases": sorted({one.case.name for trial in trials for one in trial.evaluations}),
        "candidates": len(attempts),
        "right": sum(one.is_right for one in attempts),
        "beat_the_champion": sum(one.beats_champion for one in attempts),
        "accepted": sum(one.outcome == "accepted" for one in attempts),
        "outcomes": Counter(one.outcome for one in attempts),
        "time_ratios": [one.time_ratio for one in attempts],
        "search_seconds": total_s,
        "run_seconds": whole_s,
        "candidates_a_minute": 60 * len(attempts) / total_s,
        "attempt_seconds_median": statistics.median(one.seconds for one in attempts),
        "wall_seconds": wall,
        "busy_seconds": {
            **watched,
            "compilers": sum(one.build_seconds for trial in trials for one in trial.evaluations),
            "checks, with the wait for the compiler and processes": _seconds(trials, "check"),
            "checks of cases, with the wait for the device": sum(
                one.seconds for trial in trials for one in trial.evaluations if trial.stage == "check"
            ),
            "times": _seconds(trials, "times"),
            "times of cases, with the wait for the device": sum(one.seconds for one in measurements),
            "acceptance": _seconds(trials, "acceptance"),
        },
        "result": replace(result, attempts=()).why,
        "journal": journal.folder.name,
    }


def _seconds(trials: list[Any], stage: str) -> float:
    return sum(trial.seconds for trial in trials if trial.stage == stage)


def markdown(found: dict[str, Any]) -> str:
    """The tables."""
    total_s, count = found["search_seconds"], found["candidates"]
    lines = [
        (
            f"{count} candidates in {total_s:.1f} s: **{found['candidates_a_minute']:.1f} a minute** (policy "
            f"{found['policy']}, {found['branches']} at a time, {'with' if found['profiles'] else 'without'} profiles, "
            f"{found['device']}, {found['gpus']} GPUs, {found['cores']} cores, {len(found['cases'])} cases, sandbox "
            f"{found['sandbox']}, commit {found['commit'][:10]})."
        ),
        "",
        (
            f"{found['right']} were right, {found['beat_the_champion']} seemed faster than the best until then, "
            f"{found['accepted']} were accepted as faster."
        ),
        "",
        "| the search was at | wall s | share |",
        "|---|---:|---:|",
        *(
            f"| {name} | {seconds:.2f} | {seconds / total_s:.0%} |"
            for name, seconds in sorted(found["wall_seconds"].items(), key=lambda one: -one[1])
        ),
        "",
        "| of all candidates | busy s | s a candidate |",
        "|---|---:|---:|",
        *(
            f"| {name} | {seconds:.2f} | {seconds / count:.3f} |"
            for name, seconds in found["busy_seconds"].items()
        ),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
