"""`cgins evidence ablate`: what each method of a kernel is worth."""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins import config as configuration
from pytest_cgins.app.commands.options import Subparsers, command, option
from pytest_cgins.core.errors import ConfigError

if TYPE_CHECKING:
    from pytest_cgins.regenerate.ablation import Variant


FILE = "attribution.json"


def add_parsers(kinds: Subparsers) -> None:
    """Add the subcommand to those of `cgins evidence`."""
    from pytest_cgins.app.commands import evidence

    parser = command(
        kinds,
        "ablate  time a kernel without one method after another",
        run_ablate,
        "Put each FILE in the place of the kernel's main source, in a copy of the project, check it, and time "
        "it against the kernel as it is, in turns. A method contributes if the kernel is proven slower, or wrong, without it.",
    )
    evidence.add_kernel(parser)
    option(
        parser,
        "--without NAME=FILE  a method, and the main source without it; several times",
        action="append",
        required=True,
        type=_named_file,
    )
    evidence.add_case(parser)
    option(parser, "--cgins-seed N  seed of the inputs", dest="seed", type=int)
    option(
        parser,
        "--cgins-sandbox  fence variants in; off: trust them",
        dest="sandbox",
        choices=("auto", "off"),
        default="auto",
    )


def run_ablate(arguments: argparse.Namespace) -> int:
    """Try each variant; exit status 1 if one could not be built or timed."""
    from pytest_cgins.app.commands import evidence
    from pytest_cgins.gate.calibration import Calibrations
    from pytest_cgins.regenerate import ablation, run_setup
    from pytest_cgins.regenerate.profiling import render, selection

    config = configuration.load(arguments.config)
    entry, implementations = selection.chosen(config, arguments.kernel, arguments.device)
    if len(implementations) != 1:
        names = ", ".join(
            selection.label(implementation.name, implementation.device) for implementation in implementations
        )
        raise ConfigError(
            f"kernel {entry.name} has several implementations: {names}",
            remedy=f"name one: cgins evidence ablate {entry.name}/{selection.label(implementations[0].name, implementations[0].device)}",
        )
    variants = [_variant(*one) for one in arguments.without]
    settings = ablation.Settings(
        seed=random.SystemRandom().randrange(2**31) if arguments.seed is None else arguments.seed,
        sandbox=run_setup.sandbox_of(arguments.sandbox),
        cases=arguments.case,
        noise=Calibrations().noise,
    )
    if settings.sandbox is None:
        print(run_setup.UNFENCED, file=sys.stderr)
    one = implementations[0]
    made = ablation.ablate(config, (entry.name, one.name, one.device), variants, settings, say=evidence.say)
    evidence.write(made, arguments, FILE)
    evidence.show(render.attribution(made))
    return int(any(method.state == "not-ablated" for method in made.methods))


def _named_file(text: str) -> tuple[str, Path]:
    name, _, file = text.partition("=")
    if not name or not file:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FILE")
    return name, Path(file)


def _variant(name: str, file: Path) -> Variant:
    from pytest_cgins.regenerate.ablation import Variant

    try:
        return Variant(method=name, text=file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--without {name}={file}: {error}", remedy="name a source file") from error
