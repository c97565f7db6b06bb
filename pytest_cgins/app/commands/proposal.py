"""`cgins proposal`: what a run proposes, looked at, checked, measured anew, and written into the working tree."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins.app.commands.options import Subparsers, command, flag, group, option
from pytest_cgins.core import documents
from pytest_cgins.core.errors import ProposalError
from pytest_cgins.core.text import counted

if TYPE_CHECKING:
    from pytest_cgins.regenerate.proposal.read import Contents


def add_parsers(subparsers: Subparsers) -> None:
    """Add the subcommands to the `cgins` parser."""
    commands = group(
        subparsers,
        "proposal  look at, check and apply what --cgins-regenerate proposes",
        "A proposal is a folder with a patch and its evidence. It is not trusted: it is read with strict limits, "
        "and only `verify --gate` and `rebase` run its kernel.",
    )
    about = "Print what a proposal changes, why, and what its evidence says."
    show = command(commands, "show  print a proposal", run_show, about)
    flag(show, "--json  print proposal.json, checked, instead of the text")
    verify = command(
        commands, "verify  check a proposal against itself and the working tree", run_verify,
        "Check that a proposal is valid, changes only its kernel's sources and fits the working tree. Exit status 1 "
"if not.",
    )  # fmt: skip
    flag(
        verify,
        "--gate  also gate it, in a sandboxed copy of the project, and compare the result with its evidence",
    )
    apply = command(
        commands, "apply  write a proposal's files into the working tree", run_apply,
        "Write a proposal's files into the working tree; commit nothing. Exit status 1 if the tree has changed "
"since the proposal was made.",
    )  # fmt: skip
    rebase = command(
        commands, "rebase  gate a proposal on another commit, and write a new one", run_rebase,
        "Gate a proposal on a newer commit of the base branch, in a sandboxed copy of the project and on new inputs. "
"If it is accepted, write it again with the new evidence. Exit status 1 if it is stale or not accepted.",
    )  # fmt: skip
    option(rebase, "--onto REV  commit to gate it on (default: %(default)s)", default="HEAD")
    option(rebase, "--output NEW  folder of the new proposal, which must not exist", type=Path, required=True)
    for parser in (show, verify, apply, rebase):
        option(parser, "proposal DIR  folder of the proposal", type=Path)
    for parser in (verify, apply, rebase):
        option(
            parser,
            "--root DIR  a folder of the project's repository, or the project's folder if it has none (default: this one)",
            default=Path(),
        )


def run_show(arguments: argparse.Namespace) -> int:
    """Print the proposal.

    Raises:
        ProposalError: it is damaged or hostile.
    """
    from pytest_cgins.regenerate.proposal import text as proposal_text
    from pytest_cgins.regenerate.proposal.read import read

    contents = read(arguments.proposal)
    if arguments.json:
        print(json.dumps(documents.dump_python(contents.proposal), indent=2))
    else:
        sys.stdout.write(proposal_text.text(contents, colour=sys.stdout.isatty()))
    return 0


def run_verify(arguments: argparse.Namespace) -> int:
    """Check the proposal; a line a check.

    Raises:
        ProposalError: there is no such folder, or the gate did not run.
        ConfigError: `cgins.yaml` of the working tree cannot be read.
    """
    from pytest_cgins.regenerate.proposal import report as proposal_report
    from pytest_cgins.regenerate.proposal import tree as proposal_tree
    from pytest_cgins.regenerate.proposal.read import read

    if not arguments.proposal.is_dir():
        raise ProposalError(f"{arguments.proposal}: no such folder", remedy="name the folder of a proposal")
    try:
        contents = read(arguments.proposal)
        print(f"ok    in order: {counted(len(contents.files), 'file')}, digests, patch and evidence agree")
        top, repository = proposal_tree.top_of(arguments.root)
        proposal_tree.check_own_sources(contents, top)
        print(f"ok    changes {contents.proposal.target.name} alone, by {contents.proposal.config}")
        states = proposal_tree.states(contents, top)
    except ProposalError as error:
        print(f"FAIL  {error}")
        return 1
    rendered = proposal_report.render(contents.proposal, contents.evidence, contents.patch)
    if rendered != contents.report_text:
        print("note  report.md differs from what this version writes: trust `cgins proposal show` instead")
    fits = _print_fit(contents, states, top if repository else None)
    if fits and arguments.gate:
        return _print_gate(contents, top, repository=repository)
    if not arguments.gate:
        print(
            "note  no kernel was run: that it is right and fast is known from evidence.json only; --gate runs the gate"
        )
    return 0 if fits else 1


def _print_fit(contents: Contents, states: Mapping[str, str], repository: Path | None) -> bool:
    """How the proposal fits the working tree, and git's opinion where there is a repository."""
    from pytest_cgins.regenerate.proposal.tree import git_refusal

    others = [path for path, state in states.items() if state == "other"]
    for path in others:
        print(f"FAIL  {path} in the working tree is not what the proposal was made for")
    if others:
        return False
    if set(states.values()) == {"applied"}:
        print("ok    is in the working tree already")
        return True
    print("ok    fits the working tree")
    if repository is None or "applied" in states.values():
        return True
    refusal = git_refusal(contents, repository)
    print(f"FAIL  {refusal}" if refusal else "ok    git apply takes the patch")
    return not refusal


def _print_gate(contents: Contents, top: Path, *, repository: bool) -> int:
    from pytest_cgins.regenerate.proposal.gate import gate
    from pytest_cgins.report.escape import visible

    compared = gate(contents, top, repository=repository)
    for one in compared:
        print(f"{'ok  ' if one.holds else 'FAIL'}  {visible(f'{one.case}: {one.told}, now {one.found}')}")
    return 0 if all(one.holds for one in compared) else 1


def run_rebase(arguments: argparse.Namespace) -> int:
    """Measure and write; 1 if the proposal is stale or not accepted.

    Raises:
        ProposalError: it is damaged or hostile, or the gate did not run.
        ConfigError: `cgins.yaml` of the commit cannot be read.
        RevisionError: git cannot read the commit.
    """
    from pytest_cgins.regenerate.proposal.read import read
    from pytest_cgins.regenerate.proposal.rebase import rebase
    from pytest_cgins.report import escape

    contents = read(arguments.proposal)
    found = rebase(contents, arguments.onto, arguments.output, arguments.root)
    print(escape.lines(found.line))
    return 1 if found.state in ("stale", "refused") else 0


def run_apply(arguments: argparse.Namespace) -> int:
    """Write the files.

    Raises:
        ProposalError: the proposal is damaged or hostile, or not about its kernel's own sources.
    """
    from pytest_cgins.regenerate.proposal import tree as proposal_tree
    from pytest_cgins.regenerate.proposal.read import read

    contents = read(arguments.proposal)
    top, _ = proposal_tree.top_of(arguments.root)
    proposal_tree.check_own_sources(contents, top)
    others = [path for path, state in proposal_tree.states(contents, top).items() if state == "other"]
    if others:
        print(
            f"cgins: changed since the proposal was made: {', '.join(others)}; nothing is written",
            file=sys.stderr,
        )
        return 1
    written = proposal_tree.write_files(contents, top)
    for path in written:
        print(f"wrote {path}")
    if not written:
        print("nothing to do: the working tree has it already")
    config = contents.proposal.config
    kernel = contents.proposal.target.kernel
    print(f"next: git diff, then pytest --cgins {config} -k {kernel}")
    return 0
