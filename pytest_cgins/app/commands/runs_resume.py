"""`cgins runs resume`: a run goes on as it began, up to its pull requests."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from pytest_cgins.app.commands.options import Subparsers, command, flag, option
from pytest_cgins.config import Config
from pytest_cgins.core.errors import ConfigError

if TYPE_CHECKING:
    from pytest_cgins.regenerate.journal.journal import Journal
    from pytest_cgins.regenerate.run_status import RunResult


def add_parsers(subparsers: Subparsers) -> None:
    """Add the subcommand to the `cgins runs` parser."""
    from pytest_cgins.app.commands.generate import add_run

    parser = command(
        subparsers,
        "resume  go on with a run that waits, was stopped or was killed",
        run_resume,
        "Go on with a run that waits, was stopped or was killed. What its command line said holds, also "
        "whether its proposals become pull requests (--cgins-pr).",
    )
    add_run(parser)
    option(
        parser, "--cgins-sandbox  as the run began", dest="sandbox", choices=("auto", "off"), default="auto"
    )
    flag(
        parser,
        "--give-up  end the run instead: what is not accepted yet has failed, and the project of `cgins run` is finished",
    )


def run_resume(arguments: argparse.Namespace) -> int:
    """Go on; the exit code is that of `run_setup.exit_code`.

    Raises:
        JournalError: there is no such run, or another process works on it.
        ConfigError: it began in a sandbox, and is to go on without.
    """
    from pytest_cgins.app.commands import generate
    from pytest_cgins.regenerate import run_setup, run_status
    from pytest_cgins.regenerate.journal.journal import Journal

    with Journal.resume(generate.run_folder(arguments)) as journal:
        record = journal.record
        if record.sandbox and arguments.sandbox == "off":
            raise ConfigError(
                f"run {record.id} began in a sandbox, and goes on in one",
                remedy="leave --cgins-sandbox=off out, or start a new run with it",
            )
        config = run_setup.config_of(journal)
        if arguments.give_up:
            run_status.give_up(journal)
        ran = run_status.done(journal)
        if ran is not None:
            print(f"cgins: run {record.id} is done: cgins runs show {record.id}", file=sys.stderr)
        else:
            ran = _worked(journal, config)
        ran = generate.settled(journal, config, ran)
        _publish(journal, config, ran)
        return run_setup.exit_code(ran)


def _worked(journal: Journal, config: Config) -> RunResult | None:
    from pytest_cgins.regenerate import run_setup

    settings = run_setup.settings_of(config, run_setup.options_of(journal))
    sandbox = run_setup.sandbox_of("auto" if journal.record.sandbox else "off")
    if sandbox is None:
        print(run_setup.UNFENCED, file=sys.stderr)
    return run_setup.carry_out(journal, config, settings, sandbox=sandbox)


def _publish(journal: Journal, config: Config, ran: RunResult | None) -> None:
    """Also of a run that was done: it may have been killed before that."""
    if ran is None or journal.record.pull_requests == "off":
        return
    from pytest_cgins.app.session import publish

    for line in publish.of_run(journal.record, ran, config.file):
        print(f"cgins: {line}", file=sys.stderr)
