"""`cgins methods ls`, `show`, `check`, `offer`, `choice`, `sass` and `results`."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from pytest_cgins.app.commands.options import Subparsers, command, flag, group, option, repeatable
from pytest_cgins.core import documents
from pytest_cgins.core.device import DEVICES, device_of, device_of_language
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.text import counted, nearest
from pytest_cgins.regenerate.methods import memory_file, registry, sass_signature
from pytest_cgins.regenerate.methods.axis_budget import TIES, AxisBudget, Gaps, axis_budget, near_peak
from pytest_cgins.regenerate.methods.definition import (
    AXES,
    DTYPES,
    FAMILIES,
    FIGURES,
    LANGUAGES,
    Method,
    is_metric,
)
from pytest_cgins.regenerate.methods.select import Situation, not_again, read_choice, select, validate
from pytest_cgins.regenerate.prompts.methods import offered_text

MEMORY = Path(memory_file.FOLDER) / memory_file.NAME


def add_parsers(subparsers: Subparsers) -> None:
    """Add the subcommands to the `cgins` parser."""
    commands = group(
        subparsers,
        "methods  list, show, check and offer optimization methods",
        "Methods that make kernels faster, which prompts offer, and their results in this project.",
    )
    files = argparse.ArgumentParser(add_help=False)
    repeatable(files, "--file FILE  your methods besides the built-in ones", type=Path)
    listing = command(commands, "ls  list methods", run_ls, parents=[files])
    option(listing, "--axis  only methods of this axis", choices=AXES)
    option(listing, "--device  only methods for this device", choices=DEVICES)
    option(listing, "--language  only methods that can be written in this language", choices=LANGUAGES)
    option(listing, "--family KIND  only methods for this kind of workload, e.g. norm", choices=FAMILIES)
    option(listing, "--capability 90  only methods that a device of this compute capability has", type=int)
    flag(listing, "--json  print whole methods as JSON")
    show = command(
        commands,
        "show  print a method with its triggers, languages and SASS patterns",
        run_show,
        parents=[files],
    )
    show.add_argument("id", metavar="ID")
    check = command(commands, "check  check a file of methods", run_check, "Check files of methods.")
    check.add_argument("files", nargs="+", type=Path, metavar="FILE")
    situation = _situation_options(files)
    command(commands, "offer  print what a prompt offers for a round", run_offer, parents=[situation])
    choice = command(
        commands, "choice  check a choice of methods for a round", run_choice, parents=[situation]
    )
    option(choice, "choice FILE  an answer with the choice as a block of JSON", type=Path)
    sass = command(commands, "sass  look for methods in a disassembly", run_sass, parents=[files])
    option(sass, "listing LISTING  output of cuobjdump -sass; - for stdin", type=Path)
    option(sass, "--arch sm_90a  architecture whose code is searched", required=True)
    repeatable(sass, "--method ID  only this method, also if it is absent; repeatable")
    results = command(commands, "results  list results of methods in this project", run_results)
    _add_memory(results)
    option(results, "--kernel NAME  only results of this kernel")


def _situation_options(files: argparse.ArgumentParser) -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False, parents=[files])
    option(options, "--kernel NAME  name of the kernel, whose earlier results count", default="")
    option(
        options,
        "--language  language of the kernel (default: %(default)s)",
        choices=LANGUAGES,
        default="cuda",
    )
    option(options, "--device-name NAME  name of the device in the memory, e.g. NVIDIA H200", default="")
    option(options, "--capability 90  compute capability (default: %(default)s)", default=80)
    repeatable(options, "--family KIND  kind of workload, e.g. norm", choices=FAMILIES)
    repeatable(options, "--dtype TYPE  dtype of an input, e.g. float16", choices=DTYPES)
    repeatable(options, "--metric NAME=VALUE  a measured metric")
    repeatable(options, "--gap AXIS=0.4  a roofline gap")
    repeatable(options, "--applied ID  method that the kernel already uses")
    _add_memory(options)
    return options


def _add_memory(parser: argparse.ArgumentParser) -> None:
    told = f"--memory FILE  file of the memory of methods (default: {MEMORY})"
    option(parser, told, type=Path, default=MEMORY)


def run_ls(arguments: argparse.Namespace) -> int:
    """List methods."""
    found = [method for method in registry.merged(arguments.file) if _listed(method, arguments)]
    if arguments.json:
        print("[" + ",\n".join(documents.dump(method) for method in found) + "]")
        return 0
    width = max((len(method.id) for method in found), default=0)
    for method in sorted(found, key=lambda one: (one.device, AXES.index(one.axis), one.priority, one.id)):
        print(f"{method.id:{width}}  {method.axis:7}  {method.priority}  {_archs(method):9}  {method.title}")
    print(f"{counted(len(found), 'method')}")
    return 0


def _listed(method: Method, arguments: argparse.Namespace) -> bool:
    return (
        arguments.axis in (None, method.axis)
        and arguments.device in (None, method.device)
        and (arguments.language is None or arguments.language in method.languages)
        and (arguments.family is None or method.suits((arguments.family,)))
        and (
            arguments.capability is None
            or (device_of(method.device).is_cuda and method.runs_on(arguments.capability))
        )
    )


def _archs(method: Method) -> str:
    if not device_of(method.device).is_cuda:
        return method.device
    return f"sm_{method.least_capability}" + (
        f"-{method.most_capability}" if method.most_capability < 9999 else "+"
    )


def run_show(arguments: argparse.Namespace) -> int:
    """Print one method."""
    method = registry.merged(arguments.file).get(arguments.id)
    print(f"{method.id}: {method.title}")
    print(f"axis {method.axis}, priority {method.priority}, {_archs(method)}, {', '.join(method.languages)}")
    print(
        f"for {', '.join(method.families) or 'all workloads'}, {', '.join(method.dtypes) or 'all types'}\n\n{method.what}"
    )
    for language, how in method.how.items():
        print(f"\n{language}: {how}")
    for title, lines in (
        ("needs", method.needs), ("risks", method.risks), ("requires one of", method.requires),
        ("conflicts with", method.conflicts),
    ):  # fmt: skip
        if lines:
            print("\n" + "\n  - ".join([f"{title}:", *lines]))
    if method.triggers:
        print("\ntriggers:")
    for trigger in method.triggers:
        print(
            f"  {trigger.metric}: good {trigger.good:g}, bad {trigger.bad:g} ({trigger.direction} is better)"
        )
    print("\nSASS:" if method.signatures else "\nSASS: none, so machine code cannot tell")
    for signature in method.signatures:
        most = f" to sm_{signature.most}" if signature.most < 9999 else " and later"
        start = (
            f"  sm_{signature.least}{most}"
            if signature.least != signature.most
            else f"  sm_{signature.least}"
        )
        print(f"{start}: {signature.mode} of {'   '.join(signature.patterns)}")
    return 0


def run_check(arguments: argparse.Namespace) -> int:
    """Check files of methods, together with ours."""
    before = registry.shipped()
    after = registry.merged(arguments.files)
    changed = [name for name, method in after.methods.items() if before.methods.get(name) != method]
    print(f"{counted(len(changed), 'valid method')}: {', '.join(changed)}")
    if replaced := [name for name in changed if name in before]:
        print(f"replaces built-in methods: {', '.join(replaced)}")
    return 0


def run_offer(arguments: argparse.Namespace) -> int:
    """Print the block of a prompt."""
    situation, budget, gaps = _situation(arguments)
    memory = memory_file.read(arguments.memory)
    metrics = situation.metrics
    near = near_peak(
        compute_share=metrics.get("share_of_compute"),
        memory_share=metrics.get("share_of_bandwidth"),
        gaps=gaps,
    )
    offers = select(registry.merged(arguments.file), situation, budget, memory)
    barred, leading = not_again(situation, memory), gaps.leading()
    print(offered_text(offers, budget, situation.language, barred, leading=leading))
    if near.stop:
        print(f"A run would stop here: {near.reason}", file=sys.stderr)
    return 0


def run_choice(arguments: argparse.Namespace) -> int:
    """Check a choice; 1 if there is something against it."""
    situation, budget, _ = _situation(arguments)
    memory, known = memory_file.read(arguments.memory), registry.merged(arguments.file)
    choice = read_choice(_text(arguments.choice))
    offers = select(known, situation, budget, memory)
    complaints = validate(choice, offers, registry=known, situation=situation, budget=budget, memory=memory)
    for complaint in complaints:
        print(f"{complaint.code}: {complaint.message}")
    if not complaints:
        print(f"{', '.join(pick.method for pick in choice.picks)}: breaks no rule")
    return 1 if complaints else 0


def run_sass(arguments: argparse.Namespace) -> int:
    """Look for methods in a listing; 1 if one that was asked for is not present."""
    known = registry.merged(arguments.file)
    listing = _text(arguments.listing).splitlines()
    asked = [known.get(name) for name in arguments.method]
    checks = [sass_signature.check(listing, method, arguments.arch) for method in asked or known]
    for check in checks:
        if asked or check.shown == "present":
            print(f"{check.method}: {check.shown}" + (f" ({check.note})" if check.note else ""))
            for line in check.lines[:3]:
                print(f"    {line.text}" + (f"   in {line.function}" if line.function else ""))
            for pattern in check.missing:
                print(f"    nothing matches {pattern}")
    if not asked:
        counts = {
            shown: sum(check.shown == shown for check in checks) for shown in ("present", "absent", "unknown")
        }
        print(", ".join(f"{count} {shown}" for shown, count in counts.items()))
    return 1 if asked and any(check.shown != "present" for check in checks) else 0


def run_results(arguments: argparse.Namespace) -> int:
    """Print what became of methods."""
    tried = memory_file.read(arguments.memory).tried
    found = [one for one in tried if arguments.kernel in (None, one.kernel)]
    for one in found:
        gain = f", {one.slowdown_without:.3f} times slower without it" if one.slowdown_without else ""
        print(
            f"{one.kernel} ({one.language}, {one.device_name}) {one.method}: {one.result}, SASS {one.shown}{gain}; "
            f"round {one.round} of {one.run}" + (f"; {one.note}" if one.note else "")
        )
    print(f"{counted(len(found), 'result')} in {arguments.memory}")
    return 0


def _situation(arguments: argparse.Namespace) -> tuple[Situation, AxisBudget, Gaps]:
    gaps = _numbers(arguments.gap, "--gap", TIES)
    metrics = _numbers(arguments.metric, "--metric", FIGURES)
    device = device_of_language(arguments.language)
    try:
        known = Gaps(**gaps)
    except ValueError as error:
        raise ConfigError(f"--gap: {error}", remedy="write --gap memory=0.4") from None
    situation = Situation(
        kernel=arguments.kernel,
        device=device.name,
        device_name=arguments.device_name,
        capability=arguments.capability if device.is_cuda else 0,
        language=arguments.language,
        families=tuple(arguments.family),
        dtypes=tuple(arguments.dtype),
        metrics=metrics,
        applied=tuple(arguments.applied),
    )
    return situation, axis_budget(known), known


def _numbers(texts: list[str], option: str, known: tuple[str, ...] | dict[str, str]) -> dict[str, float]:
    found = {}
    for text in texts:
        name, _, number = text.partition("=")
        if name not in known and not (option == "--metric" and is_metric(name)):
            raise ConfigError(
                f'{option} "{name}" is not known', remedy=nearest(name, known) or "see cgins methods show"
            )
        if not re.fullmatch(r"\d{1,15}(?:\.\d{1,15})?", number):
            raise ConfigError(f'{option} {name} is "{number}"', remedy=f"write {option} {name}=0.5")
        found[name] = float(number)
    return found


def _text(file: Path) -> str:
    if str(file) == "-":
        return sys.stdin.read()
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}", remedy="name another file") from None
