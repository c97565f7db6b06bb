"""`cgins generate`, `cgins run` and `cgins runs`: regeneration without pytest."""

from __future__ import annotations

import argparse
import random
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins.errors import ConfigError, JournalError
from pytest_cgins.kernels.commands import add_config_option
from pytest_cgins.options import RUNS_FOLDER

if TYPE_CHECKING:
    from pytest_cgins.config import Config
    from pytest_cgins.regenerate.journal import Journal
    from pytest_cgins.regenerate.model import Target
    from pytest_cgins.regenerate.run import Ran

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

LANGUAGES = ("cuda", "cpp", "triton", "cute")
CONTRACTS = ("launcher", "device", "torch-extension", "python")


def add_parsers(subparsers: Subparsers) -> None:
    """Add the subcommands to the `cgins` parser."""
    generate = subparsers.add_parser(
        "generate",
        help="have a model write kernels for ops that have traces and none yet",
        description="Have a language model write a kernel for each op, try each answer with the gate, and propose what "
        "it accepts. The project is not changed: `cgins proposal apply` does that.",
    )
    generate.add_argument("ops", nargs="+", metavar="OP", help="name of a recorded op, or its last word")
    generate.add_argument(
        "--name", default="", metavar="KERNEL", help="in cgins.yaml (default: the op's last word)"
    )
    _add_form(generate)
    add_config_option(generate)
    _add_asked(generate)
    generate.set_defaults(run=run_generate)
    whole = subparsers.add_parser(
        "run",
        help="from a benchmark file of GinS to kernels, in one command",
        description="Record the operations of a benchmark file, have a language model write a kernel for each, and keep "
        "what the gate accepts in a project of its own, ready for `pytest --cgins`.",
    )
    whole.add_argument("file", type=Path, metavar="FILE.json", help="programs of operations and definitions")
    whole.add_argument("--out", type=Path, metavar="FOLDER", help="of the project (default: the file's name)")
    _add_form(whole)
    _add_asked(whole)
    whole.set_defaults(run=run_benchmark)
    _add_runs(subparsers)


def _add_runs(subparsers: Subparsers) -> None:
    runs = subparsers.add_parser(
        "runs", help="journals of runs: list, show, resume, export; what an agent that answers needs to know"
    )
    kinds = runs.add_subparsers(metavar="COMMAND", required=True)
    listed = kinds.add_parser("ls", help="list runs, newest first")
    shown = kinds.add_parser("show", help="show what became of a run, attempt by attempt")
    resumed = kinds.add_parser("resume", help="go on with a run that waits, was stopped or was killed")
    exported = kinds.add_parser("export", help="write a run's files in another tool's layout")
    for parser in (shown, resumed, exported):
        parser.add_argument(
            "id", nargs="?", default="", metavar="RUN", help="name of the run (default: the newest)"
        )
    for parser in (listed, shown, resumed, exported):
        parser.add_argument(
            "--runs",
            type=Path,
            default=Path(RUNS_FOLDER),
            metavar="PATH",
            help="folder of the journals (default: %(default)s)",
        )
    resumed.add_argument(
        "--cgins-sandbox", dest="sandbox", choices=("auto", "off"), default="auto", help="as the run began"
    )
    resumed.add_argument(
        "--give-up",
        action="store_true",
        help="end the run instead: what is not accepted yet has failed, and the project of `cgins run` is finished",
    )
    exported.add_argument("--as", dest="layout", choices=("gins",), required=True, help="that tool")
    exported.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="made if need be")
    skill = kinds.add_parser("skill", help="print instructions for a coding agent that writes the answers")
    skill.set_defaults(run=run_skill)
    listed.set_defaults(run=run_ls)
    shown.set_defaults(run=run_show)
    resumed.set_defaults(run=run_resume)
    exported.set_defaults(run=run_export)


def _add_form(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--implementation", choices=LANGUAGES, default="cuda", help="default: %(default)s")
    parser.add_argument("--contract", choices=CONTRACTS, help="default: launcher; python for triton")


def _add_asked(parser: argparse.ArgumentParser) -> None:
    """The options of `pytest --cgins-regenerate`, under the same names."""
    parser.add_argument(
        "--cgins-llm", dest="llm", default="", metavar="PROVIDER[:PLACE]", help="who is asked"
    )
    parser.add_argument("--cgins-model", dest="model", default="", metavar="NAME", help="in every role")
    parser.add_argument("--cgins-runs", dest="runs", default="", metavar="PATH", help="folder for journals")
    parser.add_argument("--cgins-seed", dest="seed", type=int, metavar="N", help="seed of the inputs")
    parser.add_argument(
        "--cgins-no-timing", dest="no_timing", action="store_true", help="do not time kernels"
    )
    parser.add_argument(
        "--cgins-sandbox", dest="sandbox", choices=("auto", "off"), default="auto",
        help="fence candidates in; off: trust them",
    )  # fmt: skip


def run_generate(arguments: argparse.Namespace) -> int:
    """Generate; the exit code is that of `conduct.exit_code`."""
    from pytest_cgins import config as configuration
    from pytest_cgins.regenerate import conduct, new_kernel
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
    targets = [one.target for one in planned]
    overlays = {one.target.name: one.overlay for one in planned}
    if len(overlays) < len(planned):
        raise ConfigError("an op is named twice", remedy="name each once")
    return conduct.exit_code(_ran(arguments, config, targets, overlays))


def run_benchmark(arguments: argparse.Namespace) -> int:
    """Record, generate, and keep what was accepted; the exit code is that of `conduct.exit_code`."""
    from pytest_cgins.regenerate import benchmark_project, conduct

    folder = arguments.out or Path(arguments.file.stem)
    _require_device(arguments.implementation)
    _require_somebody(arguments.llm)
    config, targets = benchmark_project.prepare(
        arguments.file, folder, language=arguments.implementation, contract=arguments.contract
    )
    return conduct.exit_code(_ran(arguments, config, targets, {}, made_project=True))


def _require_device(language: str) -> None:
    """Candidates are tried on the device that they are for."""
    from pytest_cgins.execute.sandbox.outside import has_gpu

    if language != "cpp" and not has_gpu():
        raise ConfigError(
            f"--implementation {language}: kernels could not be tried, there is no NVIDIA GPU here",
            remedy="write them in C++: --implementation cpp",
        )


def _require_somebody(llm: str) -> None:
    """Before anything is recorded: a project that is made anew has no section llm."""
    if not llm:
        raise ConfigError(
            "nobody says which model is asked", remedy="give --cgins-llm=PROVIDER and --cgins-model=NAME"
        )


def _ran(
    arguments: argparse.Namespace,
    config: Config,
    targets: Sequence[Target],
    overlays: Mapping[str, Mapping[str, str]],
    *,
    made_project: bool = False,
) -> Ran | None:
    from pytest_cgins.kernels.revision import NONE
    from pytest_cgins.regenerate import conduct, run
    from pytest_cgins.regenerate.project_copy import head

    asked = conduct.Asked(llm=arguments.llm, model=arguments.model, runs=arguments.runs)
    settings = conduct.settings_of(config, asked)
    sandbox = conduct.sandbox_of(arguments.sandbox)
    if sandbox is None:
        print(conduct.UNFENCED, file=sys.stderr)
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
    with run.begin(config, settings, targets, (), record=record, overlays=overlays) as journal:
        return _settled(journal, config, conduct.worked(journal, config, settings, sandbox=sandbox))


def _settled(journal: Journal, config: Config, ran: Ran | None) -> Ran | None:
    """The same, with what was accepted in the project that `cgins run` made."""
    from pytest_cgins.regenerate import benchmark_project

    if ran is not None and journal.record.made_project:
        for line in benchmark_project.settle(config, ran):
            print(f"cgins: {line}", file=sys.stderr)
    return ran


# ---- cgins runs


def run_ls(arguments: argparse.Namespace) -> int:
    """A line a run."""
    from pytest_cgins.regenerate import journal, run_text

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
    from pytest_cgins.regenerate import journal, run_text

    print(run_text.whole(journal.Journal.read_only(_folder(arguments))), end="")
    return 0


def run_resume(arguments: argparse.Namespace) -> int:
    """Go on; the exit code is that of `conduct.exit_code`.

    Raises:
        JournalError: there is no such run, or another process works on it.
        ConfigError: it began in a sandbox, and is to go on without.
    """
    from pytest_cgins.regenerate import conduct, standing
    from pytest_cgins.regenerate.journal import Journal

    with Journal.resume(_folder(arguments)) as journal:
        record = journal.record
        if record.sandbox and arguments.sandbox == "off":
            raise ConfigError(
                f"run {record.id} began in a sandbox, and goes on in one",
                remedy="leave --cgins-sandbox=off out, or begin a new run with it",
            )
        config = conduct.config_of(journal)
        if arguments.give_up:
            standing.give_up(journal)
        done = standing.done(journal)
        if done is not None:
            print(f"cgins: run {record.id} is done: cgins runs show {record.id}", file=sys.stderr)
            return conduct.exit_code(_settled(journal, config, done))
        settings = conduct.settings_of(config, standing.asked_of(journal))
        sandbox = conduct.sandbox_of("auto" if record.sandbox else "off")
        if sandbox is None:
            print(conduct.UNFENCED, file=sys.stderr)
        ran = conduct.worked(journal, config, settings, sandbox=sandbox)
        return conduct.exit_code(_settled(journal, config, ran))


def run_export(arguments: argparse.Namespace) -> int:
    """Write the files of a run under the names that GinS gives them."""
    from pytest_cgins.regenerate import gins_export
    from pytest_cgins.regenerate.journal import Journal

    for file in gins_export.export(Journal.read_only(_folder(arguments)), arguments.out):
        print(file)
    return 0


def run_skill(arguments: argparse.Namespace) -> int:  # noqa: ARG001
    """Print SKILL.md."""
    print((Path(__file__).parent / "SKILL.md").read_text(encoding="utf-8"), end="")
    return 0


def _folder(arguments: argparse.Namespace) -> Path:
    from pytest_cgins.regenerate.journal import runs_in
    from pytest_cgins.text import nearest

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
            remedy=nearest(arguments.id, names) or "cgins runs ls shows those that there are",
        )
    return runs / str(arguments.id)
