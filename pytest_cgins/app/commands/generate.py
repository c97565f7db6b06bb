"""`cgins generate`, `cgins run` and `cgins runs`: regeneration without pytest."""

from __future__ import annotations

import argparse
import os
import random
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins import config as configuration
from pytest_cgins.app.commands.options import Subparsers, command, flag, group, option
from pytest_cgins.app.commands.schema import add_config_option
from pytest_cgins.config import Config
from pytest_cgins.core.errors import ConfigError, JournalError
from pytest_cgins.core.options import RUNS_FOLDER
from pytest_cgins.core.text import nearest, upwards

if TYPE_CHECKING:
    from pytest_cgins.regenerate.journal.journal import Journal
    from pytest_cgins.regenerate.new_kernel import NewKernel
    from pytest_cgins.regenerate.run_status import RunResult


LANGUAGES = ("cuda", "cpp", "triton", "cute")
CONTRACTS = ("launcher", "device", "torch-extension", "python")


def add_parsers(subparsers: Subparsers) -> Subparsers:
    """Add the subcommands to the `cgins` parser; gives those of `cgins runs`, of which `resume` is elsewhere."""
    generate = command(
        subparsers,
        "generate  have a language model write kernels for ops that have traces but no kernel",
        run_generate,
        "Have a language model write a kernel for each op, try each answer with the gate, and propose what "
        "it accepts. The project is not changed: `cgins proposal apply` does that.",
    )
    option(generate, "ops OP  name of a recorded op, or its last word", nargs="+")
    option(generate, "--name KERNEL  in cgins.yaml (default: the op's last word)", default="")
    _add_form(generate)
    add_config_option(generate)
    _add_asked(generate)
    whole = command(
        subparsers,
        "run  turn a GinS benchmark file into kernels, in one command",
        run_benchmark,
        "Record the operations of a benchmark file, have a language model write a kernel for each, and keep "
        "what the gate accepts in a project of its own, ready for `pytest --cgins`.",
    )
    option(whole, "file FILE.json  programs of operations and definitions", type=Path)
    option(whole, "--out FOLDER  of the project (default: the file's name)", type=Path)
    _add_form(whole)
    _add_asked(whole)
    return _add_runs(subparsers)


def _add_runs(subparsers: Subparsers) -> Subparsers:
    kinds = group(
        subparsers,
        "runs  journals of runs: list, show, resume, export; instructions for an agent that answers",
    )
    listed = command(kinds, "ls  list runs, newest first", run_ls)
    shown = command(kinds, "show  show what became of a run, attempt by attempt", run_show)
    exported = command(kinds, "export  write a run's files in another tool's layout", run_export)
    _add_folder(listed)
    for parser in (shown, exported):
        add_run(parser)
    option(shown, "--summary TARGET  print all that the search of one target found, as tables", default="")
    option(exported, "--as  that tool", dest="layout", choices=("gins",), required=True)
    option(exported, "--out FOLDER  made if need be", type=Path, required=True)
    command(kinds, "skill  print instructions for a coding agent that writes the answers", run_skill)
    return kinds


def add_run(parser: argparse.ArgumentParser) -> None:
    """The arguments by which `run_folder` finds a run."""
    option(parser, "id RUN  name of the run (default: the newest)", nargs="?", default="")
    _add_folder(parser)


def _add_folder(parser: argparse.ArgumentParser) -> None:
    config = upwards(Path())
    option(
        parser,
        f"--runs PATH  folder of the journals (default: {RUNS_FOLDER} beside the nearest cgins.yaml)",
        type=Path,
        default=Path(RUNS_FOLDER) if config is None else Path(os.path.relpath(config.parent / RUNS_FOLDER)),
    )


def _add_form(parser: argparse.ArgumentParser) -> None:
    option(parser, "--implementation  default: %(default)s", choices=LANGUAGES, default="cuda")
    option(parser, "--contract  default: launcher; python for triton", choices=CONTRACTS)


def _add_asked(parser: argparse.ArgumentParser) -> None:
    """The options of `pytest --cgins-regenerate`, under the same names."""
    option(parser, "--cgins-llm PROVIDER[:PLACE]  who is asked", dest="llm", default="")
    option(parser, "--cgins-model NAME  in every role", dest="model", default="")
    option(parser, "--cgins-runs PATH  folder for journals", dest="runs", default="")
    option(parser, "--cgins-seed N  seed of the inputs", dest="seed", type=int)
    flag(parser, "--cgins-no-timing  do not time kernels", dest="no_timing")
    option(
        parser,
        "--cgins-sandbox  fence candidates in; off: trust them",
        dest="sandbox",
        choices=("auto", "off"),
        default="auto",
    )


def run_generate(arguments: argparse.Namespace) -> int:
    """Generate; the exit code is that of `run_setup.exit_code`."""
    from pytest_cgins.regenerate import new_kernel, run_setup
    from pytest_cgins.regenerate.project_copy import top_of

    config = configuration.load(arguments.config)
    _require_device(arguments.implementation)
    planned = [
        new_kernel.planned(
            config,
            op,
            language=arguments.implementation,
            contract=arguments.contract,
            kernel=arguments.name if len(arguments.ops) == 1 else "",
            top=top_of(config),
        )
        for op in arguments.ops
    ]
    if len({one.target.name for one in planned}) < len(planned):
        raise ConfigError("an op is named twice", remedy="name each once")
    return run_setup.exit_code(_ran(arguments, config, planned))


def run_benchmark(arguments: argparse.Namespace) -> int:
    """Record, generate, and keep what was accepted; the exit code is that of `run_setup.exit_code`."""
    from pytest_cgins.regenerate import run_setup
    from pytest_cgins.regenerate.gins import benchmark_project

    folder = arguments.out or Path(arguments.file.stem)
    _require_device(arguments.implementation)
    _require_somebody(arguments.llm)
    config, planned = benchmark_project.prepare(
        arguments.file, folder, language=arguments.implementation, contract=arguments.contract
    )
    return run_setup.exit_code(_ran(arguments, config, planned, made_project=True))


def _require_device(language: str) -> None:
    """Candidates are tried on the device that they are for."""
    from pytest_cgins.run.sandbox.outside import has_gpu

    if language != "cpp" and not has_gpu():
        raise ConfigError(
            f"--implementation {language}: kernels could not be tried, there is no NVIDIA GPU here",
            remedy="write them in C++: --implementation cpp",
        )


def _require_somebody(llm: str) -> None:
    """Before anything is recorded: a project that is made anew has no section llm."""
    if not llm:
        raise ConfigError("no model is configured", remedy="give --cgins-llm=PROVIDER and --cgins-model=NAME")


def _ran(
    arguments: argparse.Namespace, config: Config, planned: Sequence[NewKernel], *, made_project: bool = False
) -> RunResult | None:
    from pytest_cgins.building.revision.merge_base import NONE
    from pytest_cgins.regenerate import run, run_setup
    from pytest_cgins.regenerate.project_copy import head

    asked = run_setup.RunOptions(llm=arguments.llm, model=arguments.model, runs=arguments.runs)
    settings = run_setup.settings_of(config, asked)
    sandbox = run_setup.sandbox_of(arguments.sandbox)
    if sandbox is None:
        print(run_setup.UNFENCED, file=sys.stderr)
    record = {
        "llm": arguments.llm,
        "model": arguments.model,
        "seed": random.SystemRandom().randrange(2**31) if arguments.seed is None else arguments.seed,
        "baseline": NONE,
        "base_commit": head(config.root),
        "sandbox": sandbox is not None,
        "timing": not arguments.no_timing,
        "command": shlex.join(["cgins", *sys.argv[1:]]),
        "made_project": made_project,
    }
    targets = [one.target for one in planned]
    overlays = {one.target.name: one.overlay for one in planned}
    with run.begin(config, settings, targets, (), record=record, overlays=overlays) as journal:
        return settled(journal, config, run_setup.carry_out(journal, config, settings, sandbox=sandbox))


def settled(journal: Journal, config: Config, ran: RunResult | None) -> RunResult | None:
    """The same, with what was accepted in the project that `cgins run` made."""
    from pytest_cgins.regenerate.gins import benchmark_project

    if ran is not None and journal.record.made_project:
        for line in benchmark_project.settle(config, ran):
            print(f"cgins: {line}", file=sys.stderr)
    return ran


# ---- cgins runs


def run_ls(arguments: argparse.Namespace) -> int:
    """A line a run."""
    from pytest_cgins.regenerate import run_text
    from pytest_cgins.regenerate.journal import journal

    found = journal.runs_in(arguments.runs)
    for folder in found:
        try:
            print(run_text.line(journal.Journal.read_only(folder)))
        except JournalError as error:
            print(run_text.damaged(folder, error))
    if not found:
        print(f"cgins: no run in {arguments.runs}", file=sys.stderr)
    return 0


def run_show(arguments: argparse.Namespace) -> int:
    """All attempts of a run, in words."""
    from pytest_cgins.regenerate import run_text
    from pytest_cgins.regenerate.journal import journal

    read = journal.Journal.read_only(run_folder(arguments))
    print(_summary(read, arguments.summary) if arguments.summary else run_text.whole(read), end="")
    return 0


def _summary(journal: Journal, name: str) -> str:
    """What the search of a target found.

    Raises:
        JournalError: the run has no such target, or it was not searched for.
    """
    from pytest_cgins.regenerate.search import summary, summary_text

    names = [target.name for target in journal.record.targets]
    if name not in names:
        raise JournalError(
            f'run {journal.record.id} has no target "{name}"',
            remedy=nearest(name, names) or f"it has {', '.join(names)}",
        )
    target = journal.record.targets[names.index(name)]
    found = summary.of(journal, target)
    if found is None:
        raise JournalError(
            f"{name} was not searched for: its goal is {target.goal}",
            remedy="cgins runs show tells its attempts",
        )
    return summary_text.terminal(found)


def run_export(arguments: argparse.Namespace) -> int:
    """Write the files of a run under the names that GinS gives them."""
    from pytest_cgins.regenerate.gins import export
    from pytest_cgins.regenerate.journal.journal import Journal

    for file in export.export(Journal.read_only(run_folder(arguments)), arguments.out):
        print(file)
    return 0


def run_skill(arguments: argparse.Namespace) -> int:  # noqa: ARG001
    """Print SKILL.md."""
    print((Path(__file__).parents[2] / "regenerate" / "SKILL.md").read_text(encoding="utf-8"), end="")
    return 0


def run_folder(arguments: argparse.Namespace) -> Path:
    """The folder of the run that is named, or of the newest.

    Raises:
        JournalError: there is none.
    """
    from pytest_cgins.regenerate.journal.journal import runs_in

    runs: Path = arguments.runs
    found = runs_in(runs)
    if not arguments.id:
        if not found:
            raise JournalError(f"no run in {runs}", remedy="name the folder: --runs PATH")
        return found[0]
    if (Path(arguments.id) / "run.json").is_file():
        return Path(arguments.id)
    names = [folder.name for folder in found]
    if arguments.id not in names:
        raise JournalError(
            f'no run "{arguments.id}" in {runs}',
            remedy=nearest(arguments.id, names) or "cgins runs ls lists them",
        )
    return runs / str(arguments.id)
