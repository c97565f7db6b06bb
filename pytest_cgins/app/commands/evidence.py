"""`cgins evidence`: each kind of evidence by itself, one JSON document and one table each."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins.app.commands.options import (
    Subparsers,
    add_sandbox,
    add_seed,
    command,
    flag,
    group,
    listed,
    option,
    say,
    seed_of,
)
from pytest_cgins.app.commands.schema import add_config_option
from pytest_cgins.building.revision.merge_base import NONE
from pytest_cgins.config import load, load_without_traces
from pytest_cgins.core import atomic, documents
from pytest_cgins.core.console import print_table
from pytest_cgins.core.device import DEVICES
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.options import whole_number

if TYPE_CHECKING:
    from rich.table import Table

    from pytest_cgins.regenerate.profiling.bench import Timed
    from pytest_cgins.regenerate.profiling.evidence_documents import CaseProfile


OUT = Path(".cgins/evidence")
ENV, ROOFLINE, NCU_TOP, SASS, TIDY, BENCH, ATTRIBUTION = (
    "env.json", "roofline.json", "ncu_top.json", "sass_check.json", "clang_tidy.json", "bench.json", "attribution.json",
)  # fmt: skip
MOST_TOP = 50
LARGEST_FILE = 64 << 20


def add_parsers(subparsers: Subparsers) -> None:
    """Add the subcommands to the `cgins` parser."""
    kinds = group(
        subparsers,
        "evidence  measure how a kernel uses its device",
        "Counters, roofline, machine code, ablation and times of kernels, as files that proposals carry.",
    )
    _add_env(kinds)
    _add_roofline(kinds)
    _add_profile(kinds)
    _add_sass(kinds)
    add_kernel(
        command(
            kinds, "tidy  show what clang-tidy says of a kernel's sources, where it is installed", run_tidy
        )
    )
    _add_bench(kinds)
    _add_ablate(kinds)


def _add_env(kinds: Subparsers) -> None:
    parser = command(
        kinds,
        "env  list the profiling tools of this machine",
        run_env,
        "Look for a GPU, driver, nvcc, ncu and its access to counters, cuobjdump, headers and libraries. "
        "With KERNEL: also check its cases.",
    )
    option(parser, "kernels KERNEL  also check the cases of these kernels of cgins.yaml", nargs="*")
    flag(parser, "--probe  have ncu measure a tiny kernel; needs the GPU")
    _add_places(parser)


def _add_roofline(kinds: Subparsers) -> None:
    parser = command(
        kinds,
        "roofline  show how far each case of a kernel is from its device's peaks",
        run_roofline,
        "Time the cases of a kernel, and compare bytes and flops per second with the device's measured peaks. "
        "If `cgins evidence profile` has read a case's counters, its gaps follow from them.",
    )
    add_kernel(parser)
    add_case(parser)
    add_seed(parser)


def _add_profile(kinds: Subparsers) -> None:
    parser = command(
        kinds,
        "profile  run one case of a kernel under ncu and torch's profiler",
        run_profile,
        "Profile one call of one case for each implementation. Without ncu, or without access to counters: only "
        "the timeline, registers, spills and machine code.",
    )
    add_kernel(parser)
    add_case(parser, default="the one with the largest arguments")
    option(
        parser,
        "--top N  worst figures per axis (default: %(default)s)",
        type=whole_number(1, MOST_TOP),
        default=5,
    )
    flag(parser, "--no-ncu  leave ncu out")
    add_seed(parser)


def _add_sass(kinds: Subparsers) -> None:
    parser = command(
        kinds,
        "sass  count the machine instructions of a kernel",
        run_sass,
        "Disassemble the build of each CUDA implementation. Python kernels are called once to be compiled.",
    )
    add_kernel(parser)
    add_case(parser, default="the one with the largest arguments")
    option(
        parser,
        "--arch ARCH[,ARCH]  build for these architectures, e.g. sm_80,sm_90a; no GPU needed",
        default="",
    )


def _add_bench(kinds: Subparsers) -> None:
    parser = command(
        kinds,
        "bench  time a kernel against torch, torch.compile and its base revision",
        run_bench,
        "Check and time the cases of a kernel in interleaved blocks, as `pytest --cgins` does.",
    )
    add_kernel(parser)
    add_case(parser)
    option(
        parser, "--baseline REV  a commit, merge-base, or none (default: %(default)s)", default="merge-base"
    )
    flag(parser, "--no-compile  leave torch.compile out")
    add_seed(parser)


def add_kernel(parser: argparse.ArgumentParser) -> None:
    """Add KERNEL, and where things are."""
    option(parser, "kernel KERNEL  name in cgins.yaml, or NAME/IMPLEMENTATION")
    option(parser, "--device  only the implementations for this device", choices=DEVICES)
    _add_places(parser)


def _add_places(parser: argparse.ArgumentParser) -> None:
    add_config_option(parser)
    option(parser, f"--out FOLDER  folder of the document (default: {OUT}/KERNEL)", type=Path)


def add_case(parser: argparse.ArgumentParser, *, default: str = "all") -> None:
    """Add `--case`."""
    option(parser, f"--case TEXT  only cases with this in their names (default: {default})", default="")


# ---- what they do


def run_env(arguments: argparse.Namespace) -> int:
    """Examine, write, print; exit status 1 if a case cannot be measured."""
    from pytest_cgins.regenerate.profiling import environment, render

    kernels = arguments.kernels
    preflight = environment.preflight(load(arguments.config), kernels) if kernels else ()
    made = environment.examined(probe=arguments.probe, preflight=preflight)
    publish(made, render.environment(made), arguments, ENV)
    return int(any(one.outcome in ("fail", "error") for one in made.preflight))


def run_roofline(arguments: argparse.Namespace) -> int:
    """Time, hold against peaks, write, print; exit status 1 if a case failed."""
    from pytest_cgins.regenerate.profiling import render, rooflines

    timed = _timed(arguments)
    made = rooflines.evidence(_name(arguments), timed.evaluations, _profiles(folder(arguments) / NCU_TOP))
    publish(made, render.roofline(made), arguments, ROOFLINE)
    return int(timed.failed)


def run_bench(arguments: argparse.Namespace) -> int:
    """Time, write, print; exit status 1 if a case failed."""
    from pytest_cgins.regenerate.profiling import bench, render

    timed = _timed(arguments, baseline=arguments.baseline, compile_arm=not arguments.no_compile)
    made = bench.evidence(_name(arguments), timed)
    publish(made, render.bench(made), arguments, BENCH)
    return int(timed.failed)


def _timed(arguments: argparse.Namespace, *, baseline: str = NONE, compile_arm: bool = False) -> Timed:
    from pytest_cgins.regenerate.profiling import bench

    return bench.evaluate(
        load(arguments.config), arguments.kernel, device=arguments.device, text=arguments.case,
        seed=seed_of(arguments), baseline=baseline, compile_arm=compile_arm, say=say,
    )  # fmt: skip


def run_profile(arguments: argparse.Namespace) -> int:
    """Profile, write, print; what is missing is told and fails nothing."""
    from pytest_cgins.gate.evaluate import Evaluator
    from pytest_cgins.regenerate.profiling import analysis, ncu, profile, selection

    config = load(arguments.config)
    program = None if arguments.no_ncu else ncu.find()
    evaluator = Evaluator(config, seed=seed_of(arguments), timing=False, probes="off")
    with closing(evaluator):
        chosen = selection.chosen(config, arguments.kernel, arguments.device)
        cases = selection.heaviest(selection.cases_of(evaluator.cases(), chosen, arguments.case))
        profiler = profile.Profiler(evaluator, folder(arguments), top=arguments.top, program=program, say=say)
        made = profiler.evidence(_name(arguments), cases)
    pages = [analysis.page(profile, top=made.top).terminal() for profile in made.cases]
    publish(made, pages, arguments, NCU_TOP)
    return 0


def run_sass(arguments: argparse.Namespace) -> int:
    """Disassemble, write, print; what is missing is told and fails nothing."""
    from pytest_cgins.regenerate.profiling import disassembly, render

    made = disassembly.evidence(
        arguments.config, arguments.kernel, device=arguments.device, text=arguments.case, archs=listed(arguments.arch),
    )  # fmt: skip
    publish(made, render.sass(made), arguments, SASS)
    return 0


def run_tidy(arguments: argparse.Namespace) -> int:
    """Look, write, print; findings fail nothing."""
    from pytest_cgins.regenerate.profiling import environment, render, selection, tidy

    config = load_without_traces(arguments.config)
    entry, implementations = selection.chosen(config, arguments.kernel, arguments.device)
    made = tidy.evidence(config, entry, implementations, environment.find_clang_tidy())
    publish(made, render.tidy(made), arguments, TIDY)
    return 0


# ---- what they share


def folder(arguments: argparse.Namespace) -> Path:
    """Where the document goes."""
    given: Path | None = arguments.out
    return given or OUT / _name(arguments)


def publish(made: object, parts: Iterable[Table | str], arguments: argparse.Namespace, name: str) -> None:
    """Keep a document, in place of an older one, and print it as tables and lines.

    Raises:
        OSError: it cannot be kept.
    """
    path = folder(arguments) / name
    atomic.write_text(path, documents.dump(made, indent=1) + "\n")
    say(str(path))
    for part in parts:
        if isinstance(part, str):
            print(part)
        else:
            print_table(part)


def _name(arguments: argparse.Namespace) -> str:
    """Of the kernel; several of `env` share a folder."""
    if hasattr(arguments, "kernels"):
        return str(arguments.kernels[0]).partition("/")[0] if len(arguments.kernels) == 1 else ""
    return str(arguments.kernel).partition("/")[0]


def _profiles(file: Path) -> tuple[CaseProfile, ...]:
    """Of an earlier `cgins evidence profile`; () if there was none, or of another version."""
    from pytest_cgins.regenerate.profiling.evidence_documents import ProfileEvidence

    try:
        with file.open("rb") as opened:
            return documents.load(ProfileEvidence, opened.read(LARGEST_FILE)).cases
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        say(f"{file} is not used: {str(error).partition(chr(10))[0]}")
        return ()


def _add_ablate(kinds: Subparsers) -> None:
    parser = command(
        kinds,
        "ablate  time a kernel without one method after another",
        run_ablate,
        "Replace the kernel's main source by each FILE, in a copy of the project, check it, and time it in turns "
        "with the unchanged kernel. A method contributes if the kernel is proven slower, or is wrong, without it.",
    )
    add_kernel(parser)
    option(
        parser,
        "--without NAME=FILE  a method, and the main source without it; repeatable",
        action="append",
        required=True,
        type=_named_file,
    )
    add_case(parser)
    add_seed(parser)
    add_sandbox(parser, "isolate variants; off: run them with all your rights")


def run_ablate(arguments: argparse.Namespace) -> int:
    """Try each variant; exit status 1 if one could not be built or timed."""
    from pytest_cgins.regenerate import ablation, run_setup
    from pytest_cgins.regenerate.profiling import render, selection

    config = load(arguments.config)
    entry, implementations = selection.chosen(config, arguments.kernel, arguments.device)
    if len(implementations) != 1:
        names = [selection.label(one.name, one.device) for one in implementations]
        raise ConfigError(
            f"kernel {entry.name} has several implementations: {', '.join(names)}",
            remedy=f"name one: cgins evidence ablate {entry.name}/{names[0]}",
        )
    variants = [(name, _source(name, file)) for name, file in arguments.without]
    one = implementations[0]
    made = ablation.ablate(
        config, (entry.name, one.name, one.device), variants, seed=seed_of(arguments),
        sandbox=run_setup.sandbox_told(arguments.sandbox), text=arguments.case, say=say,
    )  # fmt: skip
    publish(made, render.attribution(made), arguments, ATTRIBUTION)
    return int(any(method.state == "not-ablated" for method in made.methods))


def _named_file(text: str) -> tuple[str, Path]:
    name, _, file = text.partition("=")
    if not name or not file:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FILE")
    return name, Path(file)


def _source(name: str, file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--without {name}={file}: {error}", remedy="name a source file") from error
