"""`cgins suite`: problems × languages × policies × models, each a run of regeneration, and one table over all."""

from __future__ import annotations

import argparse
import random
import re
import shutil
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pytest_cgins import config as configuration
from pytest_cgins.app.commands.generate import CONTRACTS, LANGUAGES, begin, require_gpu
from pytest_cgins.app.commands.options import (
    Subparsers,
    add_executor,
    add_model,
    add_sandbox,
    command,
    flag,
    option,
)
from pytest_cgins.core import documents
from pytest_cgins.core.console import new_table, print_table
from pytest_cgins.core.errors import ConfigError, RecordError
from pytest_cgins.core.options import POLICIES, whole_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.table import Table

    from pytest_cgins.config import Config
    from pytest_cgins.regenerate.journal.journal import Journal
    from pytest_cgins.regenerate.new_kernel import Language
    from pytest_cgins.regenerate.run_setup import RunOptions
    from pytest_cgins.regenerate.run_status import RunResult
    from pytest_cgins.regenerate.suite import Suite, Variant

PROBLEMS = {"kernelbench": "[0-9]*_*.py", "robustkbench": "func_forward.py"}
"""What the files of a problem are called, by its kind; a task of robust-kbench is the folder of its file."""


def add_parsers(subparsers: Subparsers) -> None:
    """Add the subcommand to the `cgins` parser."""
    parser = command(
        subparsers,
        "suite  have models write kernels for many problems, and compare how they did",
        run_suite,
        "Record problems, have each model write a kernel for each of them by each policy, gate every answer, and tell how "
        "many were solved and how much faster than torch. Given again, the same command goes on.",
    )
    option(parser, "kind  what the problems are", choices=tuple(PROBLEMS))
    option(parser, "source DIR  folder of the problems", type=Path)
    option(parser, "--out FOLDER  folder of the suite", type=Path, required=True)
    flag(parser, "--allow-code  run the problems' code")
    option(parser, "--draw N  take so many problems, drawn by the seed", type=whole_number(1))
    option(parser, "--cgins-seed N  of the draw and of the inputs (default: %(default)s)", default=0)
    flag(parser, "--shrink  halve a problem's sizes until they fit --max-mib (kernelbench)")
    option(parser, "--max-mib N  leave out calls with larger tensors (default: %(default)s)", default="1024")
    option(
        parser,
        "--implementation  language of the kernels; several give a run each (default: cuda)",
        choices=LANGUAGES,
        action="append",
    )
    option(parser, "--contract  contract of the kernels", choices=CONTRACTS)
    add_model(parser, "model for every role; several, with commas between, give runs of each")
    option(
        parser,
        "--cgins-policy  search for a faster kernel; several give a run each (default: end with the first right one)",
        dest="policies",
        choices=POLICIES,
        action="append",
    )
    option(parser, "--cgins-budget KEY=N[,...]  limits of each run", default="")
    flag(parser, "--cgins-no-timing  do not time kernels")
    flag(parser, "--compile  time torch.compile, too")
    flag(parser, "--plain  say beside it what a plain harness counts: allclose, and means of events")
    add_executor(parser)
    add_sandbox(parser, "isolate candidates; off: run them with all your rights")


def run_suite(arguments: argparse.Namespace) -> int:
    """All runs; 0 if each is done, 7 if one waits for answers, 1 if one was stopped."""
    from pytest_cgins.regenerate import plain_harness, run_setup, suite_report
    from pytest_cgins.regenerate.suite import NAME, Suite

    if not arguments.llm:
        raise ConfigError("no model is configured", remedy="give --cgins-llm=PROVIDER and --cgins-model=NAME")
    place = arguments.out / NAME
    if not place.exists():
        _begin(arguments)
    known = documents.load(Suite, place.read_bytes())
    wanted = _variants(arguments)
    if [replace(one, run="") for one in known.variants] != wanted:
        raise ConfigError(
            f"{place} was begun with other languages, policies or models: "
            + "; ".join(one.name for one in known.variants),
            remedy="give the same ones to go on, or another --out",
        )
    config = configuration.load(arguments.out / "cgins.yaml")
    codes = []
    for number in range(len(known.variants)):
        with _opened(arguments, config, known.variants[number]) as journal:
            # One that is killed goes on with the run that it has begun.
            begun = replace(known.variants[number], run=journal.record.id)
            known = replace(known, variants=(*known.variants[:number], begun, *known.variants[number + 1 :]))
            _keep(place, known)
            ran = _carried_out(arguments, config, journal, begun)
            if arguments.plain and ran is not None:
                sandbox = run_setup.sandbox_of("auto" if journal.record.sandbox else "off")
                plain_harness.look(arguments.out, config, journal, sandbox)
        codes.append(run_setup.exit_code(ran))
        if ran is None:
            break
    results, plain = suite_report.made(arguments.out, known)
    scores = [score for variant in results.variants for score in variant.scores]
    print_table(_filled(suite_report.COLUMNS, suite_report.rows(scores)))
    if plain:
        print_table(_filled(suite_report.PLAIN_COLUMNS, plain))
    print(f"cgins: {arguments.out / suite_report.PAGE}", file=sys.stderr)
    # That a problem was not solved is a result, not a failure.
    waits = {130, run_setup.EXIT_WAITING}.intersection(codes)
    stopped = any(one.state == "stopped" for part in results.variants for one in part.solutions)
    return max(waits) if waits else int(stopped)


def _filled(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = new_table(*columns)
    for row in rows:
        table.add_row(*row)
    return table


def _variants(arguments: argparse.Namespace) -> list[Variant]:
    from pytest_cgins.regenerate.suite import Variant

    models = arguments.model.split(",")
    return [
        Variant(language=language, policy=policy, model=model)
        for language, policy, model in product(
            arguments.implementation or ["cuda"], arguments.policies or [""], models
        )
    ]


def _begin(arguments: argparse.Namespace) -> None:
    """Draw, record, and write down what is asked for.

    Raises:
        ConfigError: there are no such problems, or the folder is in use.
        RecordError: none of them could be recorded.
    """
    from pytest_cgins.regenerate.gins.benchmark_project import imported
    from pytest_cgins.regenerate.suite import NAME, SUITE_VERSION, Suite

    for language in arguments.implementation or ["cuda"]:
        require_gpu(language, arguments.executor)
    found = sorted(arguments.source.rglob(PROBLEMS[arguments.kind]))
    if not found:
        raise ConfigError(
            f"{arguments.source} has no problem of {arguments.kind}",
            remedy=f"name a folder with files such as {PROBLEMS[arguments.kind]}",
        )
    if arguments.out.exists() and any(arguments.out.iterdir()):
        raise ConfigError(
            f"{arguments.out} is in use, and has no {NAME}", remedy="name a new folder: --out FOLDER"
        )
    if arguments.draw is not None and arguments.draw < len(found):
        found = sorted(random.Random(arguments.seed).sample(found, arguments.draw))  # noqa: S311
    for file in found:
        whole = file.parent if arguments.kind == "robustkbench" else file
        copied = arguments.out / "problems" / whole.relative_to(arguments.source.parent)
        copied.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if whole.is_dir() else shutil.copy)(whole, copied)
    device = "cpu" if set(arguments.implementation or ["cuda"]) == {"cpp"} else "cuda"
    words = [arguments.kind, "problems", "--out", "traces/problems", "--device", device]
    words += ["--shrink"] * arguments.shrink + ["--allow-code"] * arguments.allow_code
    try:
        imported([*words, "--max-mib", arguments.max_mib], arguments.source, folder=arguments.out)
    except RecordError:
        shutil.rmtree(arguments.out)
        raise
    (arguments.out / "cgins.yaml").write_text("version: 1\ntraces: [traces/problems]\nkernels: {}\n")
    drawn = tuple(str(file.relative_to(arguments.source)) for file in found)
    source = f"{arguments.kind} {arguments.source.name}"
    variants = tuple(_variants(arguments))
    _keep(
        arguments.out / NAME,
        Suite(version=SUITE_VERSION, source=source, seed=arguments.seed, drawn=drawn, variants=variants),
    )


def _keep(place: Path, suite: Suite) -> None:
    from pytest_cgins.core import atomic

    atomic.write_text(place, documents.dump(suite, indent=1) + "\n", durable=True)


def _asked(arguments: argparse.Namespace, variant: Variant) -> RunOptions:
    from pytest_cgins.regenerate.run_setup import RunOptions

    return RunOptions(
        llm=_place_of_answers(arguments, variant),
        model=variant.model,
        policy=variant.policy,
        budget=arguments.budget,
        executor=arguments.executor,
    )


def _place_of_answers(arguments: argparse.Namespace, variant: Variant) -> str:
    """`--cgins-llm` of a run: where several would write prompts for one kernel, each has a folder in the one that is named."""
    provider, _, folder = arguments.llm.partition(":")
    alike = [one for one in _variants(arguments) if one.language == variant.language]
    if provider not in ("exchange", "replay") or not folder or len(alike) == 1:
        return str(arguments.llm)
    own = Path(folder, re.sub(r"[^\w.-]", "-", variant.name))
    return str(arguments.llm) if provider == "replay" and not own.is_dir() else f"{provider}:{own}"


def _opened(arguments: argparse.Namespace, config: Config, variant: Variant) -> Journal:
    """The run of a variant, begun if it is not yet."""
    from pytest_cgins.regenerate import run_setup
    from pytest_cgins.regenerate.gins.benchmark_project import planned
    from pytest_cgins.regenerate.journal.journal import Journal

    settings = run_setup.settings_of(config, _asked(arguments, variant))
    if variant.run:
        return Journal.resume(settings.runs / variant.run)
    kernels = planned(config, config.traces[0], cast("Language", variant.language), arguments.contract)
    goes_on = bool(variant.policy) and not arguments.no_timing
    further = {"model": variant.model, "compile": arguments.compile}
    return begin(arguments, config, settings, kernels, goes_on=goes_on, **further)


def _carried_out(
    arguments: argparse.Namespace, config: Config, journal: Journal, variant: Variant
) -> RunResult | None:
    """What a run came to; None after Ctrl-C."""
    from pytest_cgins.regenerate import run_setup, run_status

    done = run_status.done(journal)
    if done is not None:
        return done
    settings = run_setup.settings_of(config, _asked(arguments, variant))
    sandbox = run_setup.sandbox_told("auto" if journal.record.sandbox else "off")
    return run_setup.carry_out(journal, config, settings, sandbox=sandbox)
