"""`cgins traces judge`: a model's opinion of the tasks that packs set."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins import config as configuration
from pytest_cgins.app.commands.options import Subparsers, command, flag, option
from pytest_cgins.app.commands.schema import add_config_option
from pytest_cgins.core import documents
from pytest_cgins.core.console import new_table, print_table
from pytest_cgins.core.errors import PackError
from pytest_cgins.core.model import Trace
from pytest_cgins.core.text import counted
from pytest_cgins.packs.store import read_manifest

if TYPE_CHECKING:
    from pytest_cgins.regenerate.task_judge import Opinion, Task


FOLDER = ".cgins/judged"


def add_parsers(traces: Subparsers) -> None:
    """Add `judge` to `cgins traces`."""
    parser = command(
        traces,
        "judge  ask a model which ops are redundant or inefficient tasks",
        run,
        "Ask a model of each op of packs whether a part of it cannot matter, or is computed in a roundabout way: "
        "a kernel that leaves such a part out has shown nothing. Its word gates nothing.",
    )
    parser.add_argument("packs", nargs="+", type=Path, metavar="PACK")
    option(parser, "--op TEXT  only ops whose name contains this", default="")
    option(parser, "--cgins-llm PROVIDER[:PLACE]  who is asked", dest="llm", default="")
    option(parser, "--cgins-model NAME  the model", dest="model", default="")
    flag(parser, "--json  print documents instead of a table")
    add_config_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Ask, print; exit status 7 if answers are awaited that come by hand."""
    from pytest_cgins.regenerate import provider, run_setup, task_judge

    config = configuration.load(arguments.config, require_traces=False)
    settings = run_setup.settings_of(config, run_setup.RunOptions(llm=arguments.llm, model=arguments.model))
    tasks = [task for folder in arguments.packs for task in _tasks(folder, config.root, arguments.op)]
    if not tasks:
        raise PackError(
            f'no op with "{arguments.op}" in its name', remedy="`cgins traces show PACK` lists them"
        )
    again = f"cgins traces judge {' '.join(map(str, arguments.packs))}"
    with closing(provider.of_settings(settings, command=again)) as asked:
        found = task_judge.judged(
            tasks, settings, asked, config.root / FOLDER,
            say=lambda line: print(f"cgins: judged {line}", file=sys.stderr),
        )  # fmt: skip
    opinions = [one for one in found if one is not None]
    if arguments.json:
        print(json.dumps([documents.dump_python(opinion) for opinion in opinions], indent=1))
    else:
        _print(opinions)
    missing = [task.id for task, one in zip(tasks, found, strict=True) if one is None]
    if missing:
        where = f"{settings.path}/{missing[0]}/prompt.md"
        print(
            f"cgins: {counted(len(missing), 'answer is', 'answers are')} awaited, the first to {where}; then run this again",
            file=sys.stderr,
        )
        return run_setup.EXIT_WAITING
    return 0


def _tasks(folder: Path, root: Path, text: str) -> list[Task]:
    from pytest_cgins.regenerate.task_judge import Task

    pack = read_manifest(folder)
    by_op: dict[str, list[Trace]] = {}
    for trace in pack.traces:
        if text in trace.call.op:
            by_op.setdefault(trace.call.op, []).append(trace)
    return [Task(pack=pack.name, op=op, traces=tuple(traces), root=root) for op, traces in by_op.items()]


def _print(opinions: list[Opinion]) -> None:

    words = {True: "yes", False: "no", None: "not said"}
    table = new_table("pack", "op", "redundant", "inefficient", "why")
    for one in sorted(opinions, key=lambda one: not (one.redundant or one.inefficient)):
        table.add_row(one.pack, one.op, words[one.redundant], words[one.inefficient], one.why)
    print_table(table)
    flagged = sum(bool(opinion.redundant or opinion.inefficient) for opinion in opinions)
    print(
        f"{counted(len(opinions), 'task')}, {flagged} redundant or inefficient, as {_models(opinions)} says"
    )


def _models(opinions: list[Opinion]) -> str:
    return ", ".join(dict.fromkeys(opinion.model for opinion in opinions if opinion.model)) or "nobody"
