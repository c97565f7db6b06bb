"""`cgins runs`: journals of runs, a run that goes on up to its pull requests, and whose opinions were worth having."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins.app.commands.generate import settled
from pytest_cgins.app.commands.options import Subparsers, add_sandbox, command, flag, group, option
from pytest_cgins.config import Config
from pytest_cgins.core import documents
from pytest_cgins.core.console import new_table, print_table
from pytest_cgins.core.errors import ConfigError, JournalError
from pytest_cgins.core.options import RUNS_FOLDER
from pytest_cgins.core.text import nearest, upwards

if TYPE_CHECKING:
    from pytest_cgins.regenerate.journal.journal import Journal
    from pytest_cgins.regenerate.run_status import RunResult


def add_parsers(subparsers: Subparsers) -> None:
    """Add the subcommands to the `cgins` parser."""
    kinds = group(
        subparsers,
        "runs  list, show, resume and export runs of regeneration",
        "Each run of --cgins-regenerate keeps a journal. `skill` prints instructions for a coding agent that writes "
        "the answers.",
    )
    listed = command(kinds, "ls  list runs, newest first", run_ls)
    shown = command(kinds, "show  show a run attempt by attempt", run_show)
    exported = command(kinds, "export  write a run's files in another tool's layout", run_export)
    _add_folder(listed)
    for parser in (shown, exported):
        _add_run(parser)
    option(shown, "--summary TARGET  print the search of one target, as tables", default="")
    option(exported, "--as  tool whose layout is written", dest="layout", choices=("gins",), required=True)
    option(exported, "--out FOLDER  folder of the files, made if needed", type=Path, required=True)
    command(kinds, "skill  print instructions for a coding agent that writes the answers", run_skill)
    _add_resume(kinds)
    _add_verifiers(kinds)


def _add_run(parser: argparse.ArgumentParser) -> None:
    """The arguments by which `_run_folder` finds a run."""
    option(parser, "id RUN  name of the run (default: the newest)", nargs="?", default="")
    _add_folder(parser)


def _add_folder(parser: argparse.ArgumentParser) -> None:
    config = upwards(Path())
    option(
        parser,
        f"--runs PATH  folder of the journals (default: {RUNS_FOLDER} beside the nearest cgins.yaml)",
        default=Path(RUNS_FOLDER) if config is None else Path(os.path.relpath(config.parent / RUNS_FOLDER)),
    )


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

    read = journal.Journal.read_only(_run_folder(arguments))
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
            remedy="cgins runs show lists its attempts",
        )
    return summary_text.page(found).terminal()


def run_export(arguments: argparse.Namespace) -> int:
    """Write the files of a run under the names that GinS gives them."""
    from pytest_cgins.regenerate.gins import export
    from pytest_cgins.regenerate.journal.journal import Journal

    for file in export.export(Journal.read_only(_run_folder(arguments)), arguments.out):
        print(file)
    return 0


def run_skill(arguments: argparse.Namespace) -> int:  # noqa: ARG001
    """Print SKILL.md."""
    print((Path(__file__).parents[2] / "regenerate" / "SKILL.md").read_text(encoding="utf-8"), end="")
    return 0


def _run_folder(arguments: argparse.Namespace) -> Path:
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


def _add_resume(kinds: Subparsers) -> None:
    parser = command(
        kinds,
        "resume  continue a run that waits, was stopped or was killed",
        run_resume,
        "Continue a run that waits, was stopped or was killed. The original options still apply, "
        "including --cgins-pr.",
    )
    _add_run(parser)
    add_sandbox(parser, "auto: as the run began; a run that began in a sandbox refuses off")
    flag(
        parser,
        "--give-up  end the run: searches end with their best, what is not accepted has failed, and the project of `cgins run` is finished",
    )


def run_resume(arguments: argparse.Namespace) -> int:
    """Go on; the exit code is that of `run_setup.exit_code`.

    Raises:
        JournalError: there is no such run, or another process works on it.
        ConfigError: it began in a sandbox, and is to go on without.
    """
    from pytest_cgins.regenerate import run_setup, run_status
    from pytest_cgins.regenerate.journal.journal import Journal

    with Journal.resume(_run_folder(arguments)) as journal:
        record = journal.record
        if record.sandbox and arguments.sandbox == "off":
            raise ConfigError(
                f"run {record.id} began in a sandbox, and cannot continue without one",
                remedy="leave --cgins-sandbox=off out, or start a new run with it",
            )
        config = run_setup.config_of(journal)
        if arguments.give_up:
            if any(map(journal.has_champion, record.targets)):
                _worked(journal, config, gives_up=True)
            run_status.give_up(journal)
        ran = run_status.done(journal)
        if ran is not None:
            print(f"cgins: run {record.id} is done: cgins runs show {record.id}", file=sys.stderr)
        else:
            ran = _worked(journal, config)
        return run_setup.exit_code(settled(journal, config, ran))


def _worked(journal: Journal, config: Config, *, gives_up: bool = False) -> RunResult | None:
    from pytest_cgins.regenerate import run_setup

    settings = run_setup.settings_of(config, run_setup.options_of(journal))
    sandbox = run_setup.sandbox_told("auto" if journal.record.sandbox else "off")
    return run_setup.carry_out(journal, config, settings, sandbox=sandbox, gives_up=gives_up)


def _add_verifiers(kinds: Subparsers) -> None:
    parser = command(
        kinds, "verifiers  compare each verifier of a search with the gate's findings", run_verifiers
    )
    _add_run(parser)
    flag(parser, "--json  print documents instead of a table")


def run_verifiers(arguments: argparse.Namespace) -> int:
    """A row a model and question."""
    from pytest_cgins.regenerate.journal.journal import Journal
    from pytest_cgins.regenerate.search.verifiers import scores

    found = scores(Journal.read_only(_run_folder(arguments)))
    if arguments.json:
        print(json.dumps([documents.dump_python(one) for one in found], indent=1))
        return 0
    table = new_table(
        "verifier", "question", ">precision", ">recall", ">right, doubted", ">wrong, approved", ">opinions"
    )
    for one in found:
        score = one.score
        opinions = sum(documents.dump_python(score).values())
        table.add_row(
            one.model or "by hand", one.question, _share(score.precision), _share(score.recall),
            str(score.right_and_doubted), str(score.wrong_and_said_right), str(opinions),
        )  # fmt: skip
    if found:
        print_table(table)
    else:
        print("no verifier judged a candidate that the gate also tried")
    return 0


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"
