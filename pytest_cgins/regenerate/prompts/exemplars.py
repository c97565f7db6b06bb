"""Exemplars: one complete kernel of another op, in the contract and language that is asked for.

`templates/exemplars/` has ours, a file each, whose first line says op, kind of op, contract and language; tests gate
each where its device is. What was accepted in the project's own runs joins them, and comes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from pytest_cgins.core import documents
from pytest_cgins.core.case import Contract
from pytest_cgins.regenerate.attempt import Target
from pytest_cgins.regenerate.journal.files import read_files
from pytest_cgins.regenerate.prompts import templating, workload
from pytest_cgins.regenerate.prompts.context import Context

MOST_CHARACTERS = 6_000
_HEADER = re.compile(r"^\W+exemplar: ")
_MOST_RUNS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Exemplar:
    """A kernel that is right."""

    op: str
    """What it computes."""
    family: workload.Family
    """Its kind of op."""
    contract: Contract
    """How it is called."""
    language: workload.Language
    """What it is written in."""
    name: str
    """Of its file."""
    text: str
    """The source."""


def exemplar(context: Context) -> Exemplar | None:
    """The one for a kernel that is to be written: of its contract and language, of its kind of op if there is one, never of its op."""
    wanted = workload.language_of(context)
    op, family = context.target.op, workload.family_of(context.target.op)
    found = [
        one
        for one in (*_of_project(context), *shipped())
        if (one.contract, one.language) == (context.implementation.contract, wanted)
        and workload.word(one.op) != workload.word(op)
    ]
    return min(found, key=lambda one: one.family != family, default=None)


def shipped() -> Iterator[Exemplar]:
    """Ours."""
    for file in sorted((templating.FOLDER / "exemplars").iterdir()):
        header, _, text = file.read_text(encoding="utf-8").partition("\n")
        op, family, contract, language = _HEADER.sub("", header).split(", ")
        yield Exemplar(
            op=op,
            family=cast("workload.Family", family),
            contract=cast("Contract", contract),
            language=cast("workload.Language", language),
            name=file.name.removesuffix(".txt"),
            text=text,
        )


def _of_project(context: Context) -> Iterator[Exemplar]:
    """Kernels of one file that were accepted in runs of this project, the newest first."""
    finals = sorted(context.runs.glob("*/*/final"), reverse=True) if context.runs is not None else []
    for final in finals[:_MOST_RUNS]:
        try:
            target = documents.load(Target, (final.parent / "target.json").read_bytes())
            files = read_files(final)
        except (OSError, ValueError):
            continue  # of another version, or removed in this moment
        (path, text), *more = files.items()
        if not more and len(text) <= MOST_CHARACTERS:
            language = workload.language_in(target.contract, target.implementation, target.device, files)
            family = workload.family_of(target.op)
            yield Exemplar(
                op=target.op, family=family, contract=target.contract, language=language, name=path, text=text
            )
