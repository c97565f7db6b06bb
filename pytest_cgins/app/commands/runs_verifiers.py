"""`cgins runs verifiers`: whose opinions on candidates are worth having."""

from __future__ import annotations

import argparse

from pytest_cgins.app.commands.options import Subparsers, command, flag
from pytest_cgins.core import documents
from pytest_cgins.core.console import new_table, print_table


def add_parsers(runs: Subparsers) -> None:
    """Add `verifiers` to `cgins runs`."""
    from pytest_cgins.app.commands.generate import add_run

    parser = command(
        runs, "verifiers  how often each verifier of a search was right, by what the gate found", run
    )
    add_run(parser)
    flag(parser, "--json  print documents instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """A row a model and question."""
    import json

    from pytest_cgins.app.commands.generate import run_folder
    from pytest_cgins.regenerate.journal.journal import Journal
    from pytest_cgins.regenerate.search.verifiers import scores

    found = scores(Journal.read_only(run_folder(arguments)))
    if arguments.json:
        print(json.dumps([documents.dump_python(one) for one in found], indent=1))
        return 0
    table = new_table(
        "verifier",
        "question",
        ">precision",
        ">recall",
        ">right, doubted",
        ">wrong, called right",
        ">opinions",
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
        print("no verifier was asked about a candidate that was tried")
    return 0


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"
