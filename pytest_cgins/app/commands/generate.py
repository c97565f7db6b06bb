"""`cgins generate` and `cgins run`: regeneration without pytest."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins import config as configuration
from pytest_cgins.app.commands.options import (
    Subparsers,
    add_executor,
    add_model,
    add_sandbox,
    add_seed,
    command,
    flag,
    option,
    seed_of,
)
from pytest_cgins.app.commands.schema import add_config_option
from pytest_cgins.config import Config
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.options import POLICIES

if TYPE_CHECKING:
    from pytest_cgins.config.llm import LlmSettings
    from pytest_cgins.regenerate.journal.journal import Journal
    from pytest_cgins.regenerate.new_kernel import NewKernel
    from pytest_cgins.regenerate.run_status import RunResult


LANGUAGES = ("cuda", "cpp", "triton", "cute")
CONTRACTS = ("launcher", "device", "torch-extension", "python")


def add_parsers(subparsers: Subparsers) -> None:
    """Add the subcommands to the `cgins` parser."""
    generate = command(
        subparsers,
        "generate  have a language model write the kernels that are missing",
        run_generate,
        "Have a language model write a kernel for each op, gate each answer, search for a faster one, and propose the "
        "accepted ones. The project stays unchanged until `cgins proposal apply`.",
    )
    option(generate, "ops OP  name of a recorded op, or its last word", nargs="+")
    option(
        generate,
        "--name KERNEL  name in cgins.yaml, for a single op (default: the op's last word)",
        default="",
    )
    _add_form(generate)
    add_config_option(generate)
    _add_asked(generate)
    option(
        generate,
        "--cgins-pr auto|draft|off  pull requests for proposals, as of pytest (default: %(default)s)",
        dest="pull_requests",
    )
    whole = command(
        subparsers,
        "run  turn a GinS benchmark file into kernels, in one command",
        run_benchmark,
        "Record the operations of a benchmark file, have a language model write a kernel for each and make it faster, "
        "and keep the accepted ones in a new project, ready for `pytest --cgins`.",
    )
    option(whole, "file FILE.json  programs of operations and definitions", type=Path)
    option(whole, "--out FOLDER  folder of the project (default: the file's name)", type=Path)
    _add_form(whole)
    _add_asked(whole)


def _add_form(parser: argparse.ArgumentParser) -> None:
    option(
        parser,
        "--implementation  language of the kernels (default: %(default)s)",
        choices=LANGUAGES,
        default="cuda",
    )
    option(
        parser,
        "--contract  contract of the kernels (default: launcher; python for triton)",
        choices=CONTRACTS,
    )


def _add_asked(parser: argparse.ArgumentParser) -> None:
    """The options of `pytest --cgins-regenerate`, under the same names."""
    add_model(parser, "model for every role")
    option(parser, "--cgins-budget KEY=N[,...]  limits, before llm.budget of cgins.yaml", default="")
    option(
        parser,
        "--cgins-policy  how a faster kernel is searched for once one is right (default: llm.policy, else refine)",
        choices=POLICIES,
        default="",
    )
    flag(parser, "--first  end with the first right kernel")
    option(parser, "--cgins-runs PATH  folder for journals", default="")
    add_seed(parser)
    flag(parser, "--cgins-no-timing  do not time kernels")
    add_executor(parser)
    add_sandbox(parser, "isolate candidates; off: run them with all your rights")


def run_generate(arguments: argparse.Namespace) -> int:
    """Generate; the exit code is that of `run_setup.exit_code`."""
    from pytest_cgins.regenerate import new_kernel, run_setup
    from pytest_cgins.regenerate.project_copy import top_of

    config = configuration.load(arguments.config)
    if config.file.name != "cgins.yaml":
        raise ConfigError(
            f"{config.file}: a proposal adds its kernel to a file named cgins.yaml, as pytest --cgins reads",
            remedy="name it so, in a folder of its own if there is another",
        )
    require_gpu(arguments.implementation, arguments.executor)
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
    require_gpu(arguments.implementation, arguments.executor)
    if not arguments.llm:  # a project that is made anew has no section llm
        raise ConfigError("no model is configured", remedy="give --cgins-llm=PROVIDER and --cgins-model=NAME")
    config, planned = benchmark_project.prepare(
        arguments.file, folder, language=arguments.implementation, contract=arguments.contract
    )
    return run_setup.exit_code(_ran(arguments, config, planned, made_project=True))


def require_gpu(language: str, executor: str) -> None:
    """Candidates are tried on the device that they are for.

    Raises:
        ConfigError: there is none, and no cluster is named.
    """
    from pytest_cgins.run.sandbox.outside import has_gpu

    if not executor.startswith("ray") and language != "cpp" and not has_gpu():
        raise ConfigError(
            f"--implementation {language}: kernels could not be tried, because there is no NVIDIA GPU here",
            remedy="write them in C++: --implementation cpp",
        )


def _ran(
    arguments: argparse.Namespace, config: Config, planned: Sequence[NewKernel], *, made_project: bool = False
) -> RunResult | None:
    from pytest_cgins.regenerate import run_setup
    from pytest_cgins.regenerate.project_copy import head

    asked = run_setup.RunOptions(
        llm=arguments.llm,
        model=arguments.model,
        policy=arguments.policy,
        budget=arguments.budget,
        runs=arguments.runs,
        executor=arguments.executor,
    )
    settings = run_setup.settings_of(config, asked)
    sandbox = run_setup.sandbox_told(arguments.sandbox)
    goes_on = not arguments.first and not arguments.no_timing
    further = {
        "base_commit": head(config.root),
        "made_project": made_project,
        "pull_requests": "off" if made_project else arguments.pull_requests,
    }
    with begin(arguments, config, settings, planned, goes_on=goes_on, **further) as journal:
        return settled(journal, config, run_setup.carry_out(journal, config, settings, sandbox=sandbox))


def begin(
    arguments: argparse.Namespace,
    config: Config,
    settings: LlmSettings,
    planned: Sequence[NewKernel],
    *,
    goes_on: bool,
    **further: object,
) -> Journal:
    """Write down the run of a command; `further` has fields of the record that the options of all such commands do not tell."""
    from pytest_cgins.building.revision.merge_base import NONE
    from pytest_cgins.regenerate import run

    record = {
        "llm": arguments.llm,
        "model": arguments.model,
        "budget": arguments.budget,
        "seed": seed_of(arguments),
        "baseline": NONE,
        "executor": arguments.executor,
        "sandbox": arguments.sandbox != "off",
        "timing": not arguments.no_timing,
        "command": shlex.join(["cgins", *sys.argv[1:]]),
        **further,
    }
    targets = [one.target for one in planned]
    overlays = {one.target.name: one.overlay for one in planned}
    return run.begin(config, settings, targets, (), record=record, overlays=overlays, goes_on=goes_on)


def settled(journal: Journal, config: Config, ran: RunResult | None) -> RunResult | None:
    """The same, with what was accepted in the project that `cgins run` made, or in pull requests."""
    from pytest_cgins.app.session import publish
    from pytest_cgins.regenerate.gins import benchmark_project

    if ran is None:
        return None
    if journal.record.made_project:
        lines: Iterable[str] = benchmark_project.settle(config, ran)
    else:
        # Also of a run that was done: it may have been killed before that.
        lines = publish.of_run(journal.record, ran, config.file)
    for line in lines:
        print(f"cgins: {line}", file=sys.stderr)
    return ran
