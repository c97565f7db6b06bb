"""`cgins init`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins.app.commands.options import Subparsers, command, flag, option
from pytest_cgins.app.init.scan import Definition, scan
from pytest_cgins.core import atomic
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.text import counted
from pytest_cgins.report.escape import visible

if TYPE_CHECKING:
    from pytest_cgins.app.init.plan import Plan

_LISTED = 30
"""Lines about what is left out, unless all are wanted."""


def add_parsers(subparsers: Subparsers) -> None:
    """Add the command to the `cgins` parser."""
    parser = command(
        subparsers,
        "init  find the kernels of a repository, and write cgins.yaml and a recording script",
        init,
        "Read a repository's sources, without running them, and write cgins.yaml and a recording script for its kernels.",
    )
    option(parser, "folder FOLDER  the repository (default: here)", nargs="?", default=Path())
    option(
        parser,
        "--device  where kernels of Triton run; on the CPU, in its interpreter (default: %(default)s)",
        choices=("cpu", "cuda"),
        default="cuda",
    )
    option(
        parser,
        "--github OWNER/NAME@COMMIT  write the workflows that gate pull requests and comment on them instead (default: the "
        "commit that pip installed)",
        nargs="?",
        const="",
    )
    flag(parser, "--force  replace files that are there")
    flag(parser, "--all  list all that is left out")


def init(args: argparse.Namespace) -> int:
    """Write the files; 1 if no kernel can be entered."""
    from pytest_cgins.app.init import files, plan

    if not args.folder.is_dir():
        raise ConfigError(f"{args.folder} is not a folder", remedy="name the folder of the repository")
    if args.github is not None:
        _write(args.folder, files.workflows(args.folder, args.github), force=args.force)
        print("next      merge both: GitHub reads the workflow that comments from the default branch")
        return 0
    kernels = plan.make_plan(scan(args.folder))
    _print(kernels, everything=args.all)
    if not kernels.entries:
        print("nothing was written → write cgins.yaml by hand: name the op that a kernel replaces")
        return 1
    _write(args.folder, files.project_files(kernels, args.device), force=args.force)
    own = [entry.function.file for entry in kernels.entries if isinstance(entry.function, Definition)]
    words = filter(None, ["python -m pytest --cgins", files.import_roots(own)])
    where = "" if args.folder == Path() else f"cd {args.folder} && "
    print(f"next      {where}python {files.SCRIPT} && {' '.join(words)}")
    return 0


def _print(plan: Plan, *, everything: bool) -> None:
    """What is entered, and, a line for each file and reason, what is left out."""
    for entry in plan.entries:
        function = entry.function
        name = (
            function.target if isinstance(function, Definition) else f"{function.files[0]}: {function.name}"
        )
        print(f"entered   {entry.match.name}/{entry.implementation}: {entry.match.op} by {visible(name)}")
    reasons: dict[tuple[str, str], list[str]] = {}
    for item, why in plan.left_out:
        file, _, name = item.partition(" ")
        reasons.setdefault((file, why), []).append(name)
    for number, ((file, why), names) in enumerate(reasons.items()):
        if number < _LISTED or everything:
            listed = f"{file} {', '.join(names)}".strip()
            print(f"left out  {visible(listed)}: {visible(why)}")
    if len(reasons) > _LISTED and not everything:
        print(f"left out  {len(reasons) - _LISTED} more → cgins init --all lists them")
    if reasons:
        print(
            "→ others are entered by hand: op: MODULE.FUNCTION, target: MODULE:FUNCTION, and reference: MODULE:FUNCTION, a "
            "function of torch that does the same; cgins record SCRIPT --out traces/own --ops MODULE.FUNCTION records them"
        )
    operators = [name for names in reasons.values() for name in names if "::" in name]
    if operators:
        op = visible(f"torch.ops.{operators[0].replace('::', '.')}")
        print(
            f"→ a registered operator can be the op itself: op: {op}, load: [MODULE], which registers it; cgins record SCRIPT "
            "--out traces/own records it as a script of yours calls it; without a reference the recorded gold alone decides"
        )
    covered = len({name for entry in plan.entries for name in entry.covers})
    compiled = sum(not entry.covers for entry in plan.entries)
    print(
        f"{counted(len(plan.kernels), 'kernel')} of Triton and CuTe and {counted(len(plan.scan.compiled), 'compiled function')} "
        f"found; {counted(len(plan.entries), 'implementation')} entered, which run {covered} and {compiled} of them"
    )


def _write(folder: Path, texts: Mapping[str, str], *, force: bool) -> None:
    """Write files, none of them or all."""
    there = [name for name in texts if (folder / name).exists()]
    if there and not force:
        raise ConfigError(
            f"{', '.join(there)} {'is' if len(there) == 1 else 'are'} already in {folder}",
            remedy="move what is yours away, or pass --force to replace it",
        )
    for name, text in texts.items():
        atomic.write_text(folder / name, text)
        print(f"wrote     {folder / name}")
