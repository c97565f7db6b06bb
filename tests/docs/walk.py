"""Walks through a document: its files are written, its commands run, and what it quotes is looked for.

A block is a file if the text before it ends in its name and a colon. Lines of a console block that begin with
`$` are commands; the lines below one are what it prints.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_cgins.app import cli
from pytest_cgins.building.revision.merge_base import TARGETS
from tests.forked_python import gate_python

_BLOCK = re.compile(r"(?m)^```(?P<language>\S*)\n(?P<text>.*?)^```$", re.DOTALL)
_FILE = re.compile(r"`(?P<file>[\w./]+)`:\s*$")
_TIME = re.compile(r"\d[\d.]* (ns|us|ms|s)(?!\w)")
# What differs between machines and runs: decimal fractions, numbers of three digits or more, and indices.
_NUMBER = re.compile(r"(?<![\w-])-?(\d+\.\d+|\d[\d,]{2,})(?![\d-])|\[[\d, ]+\]")
_PICTURE = re.compile(r"[.+#-]{7,}")


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    text: str
    file: str
    """The file that the line before it says the block is; "" if none."""


@dataclass(frozen=True)
class Command:
    """One command of a console block."""

    line: str
    quoted: str
    """What the document says that it prints."""


def blocks(text: str) -> Iterator[Block]:
    for match in _BLOCK.finditer(text):
        named = _FILE.search(text[: match.start()])
        yield Block(match["language"], match["text"], named["file"] if named else "")


def links(text: str) -> list[str]:
    """Targets of relative links, without the part after `#`."""
    return re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", _BLOCK.sub("", text))


def commands(block: Block) -> Iterator[Command]:
    """The commands of a console block, each with the lines below it."""
    for part in re.split(r"(?m)^\$ ", block.text)[1:]:
        line, _, quoted = part.partition("\n")
        yield Command(line, quoted)


def run(text: str, capfd: pytest.CaptureFixture[str]) -> list[str]:
    """Do all that a document says, in the current folder, and check its quotations; gives the commands."""
    last, ran = Path(), []
    for block in blocks(text):
        if block.file:
            last = Path(block.file)
            last.parent.mkdir(parents=True, exist_ok=True)
            last.write_text(block.text)
        elif block.language == "diff":
            last.write_text(patched(last.read_text(), block.text))
        for command in commands(block) if block.language == "console" else ():
            printed = _RUNNERS[command.line.split()[0]](command, capfd)
            absent = missing(command.quoted, printed)
            assert not absent, f"$ {command.line}\ndoes not print\n{absent}\nbut\n{printed}"
            ran.append(command.line)
    return ran


def _cgins(command: Command, capfd: pytest.CaptureFixture[str]) -> str:
    """In this process: a process of its own would import torch again."""
    capfd.readouterr()
    code = cli.main(shlex.split(command.line)[1:])
    printed = capfd.readouterr()
    assert code == (2 if command.quoted.startswith("cgins: ") else 0), printed.out + printed.err
    return printed.out + printed.err


def _python(command: Command, capfd: pytest.CaptureFixture[str]) -> str:
    capfd.readouterr()
    runpy.run_path(shlex.split(command.line)[1], run_name="__main__")
    return capfd.readouterr().out


def _git(command: Command, _: pytest.CaptureFixture[str]) -> str:
    """As somebody with a name, and without their settings."""
    person = {f"GIT_{who}_{what}": "docs" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    finished = subprocess.run(
        shlex.split(command.line),
        env={**os.environ, **person, "GIT_CONFIG_GLOBAL": os.devnull},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def _pytest(command: Command, _: pytest.CaptureFixture[str]) -> str:
    ours = ("CI", *TARGETS)  # of a pull request of this repository, not of the document's
    kept = (name for name in os.environ if not name.startswith("PYTEST_") and name not in ours)
    environment = {name: os.environ[name] for name in kept}
    finished = gate_python().run(["-m", *shlex.split(command.line)], env={**environment, "COLUMNS": "100"})
    failed = " failed" in command.quoted
    assert finished.returncode == int(failed), finished.stdout + finished.stderr
    return re.sub(r"(?m)^=+ | =+$", "", finished.stdout)


_RUNNERS = {"cgins": _cgins, "git": _git, "python": _python, "pytest": _pytest}


def patched(source: str, diff: str) -> str:
    """The source with the lines of a diff block replaced; they must be there once."""
    sides = {
        sign: "".join(line[1:] for line in diff.splitlines(keepends=True) if line[0] in (sign, " "))
        for sign in "-+"
    }
    assert source.count(sides["-"]) == 1, f"{sides['-']!r} is not there once"
    return source.replace(sides["-"], sides["+"])


def missing(quoted: str, printed: str) -> str:
    """The first quoted line that was not printed, in the order of the quotation; "" if all were.

    Numbers that depend on the machine, times and pictures may be others; `…` stands for anything.
    """
    lines = iter(printed.splitlines())
    for line in quoted.splitlines():
        if line.strip() in ("", "…"):
            continue
        pattern = re.compile(_pattern(line.strip()))
        if not any(pattern.fullmatch(" ".join(other.split())) for other in lines):
            return line
    return ""


def _pattern(line: str) -> str:
    if _PICTURE.fullmatch(line):
        return _PICTURE.pattern
    marked = _TIME.sub("\0", " ".join(line.split()))
    marked = _NUMBER.sub("\1", marked)
    pattern = re.escape(marked).replace("\0", _TIME.pattern).replace("…", ".*")
    return pattern.replace("\1", r"(-?[\d.,]+(e[+-]?\d+)?|\[[\d, ]+\])")
