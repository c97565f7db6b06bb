"""The form of answers that prompts of a search ask for, and that such answers are read."""

from __future__ import annotations

import json

import pytest

from pytest_cgins.regenerate import answers
from pytest_cgins.regenerate.attempt import Ask
from pytest_cgins.regenerate.prompts import assembly
from pytest_cgins.regenerate.search.tree import ROOT
from tests.regenerate.answers import answer
from tests.regenerate.prompts.example import context_of

PICKS = '```json\n{"picks": [{"method": "vector-access", "why": "narrow loads"}], "skipped": {}}\n```'


def prompt(kernel, implementation):
    context = context_of(kernel, implementation, "optimise")
    ask = Ask(parent=0, kind="optimise", round=2)
    return context, assembly.candidate(context, ask, ROOT, shown=(), evidence="", methods="")[-1].text


@pytest.mark.parametrize(
    ("kernel", "implementation"), [("linear", "cute"), ("scaled_dot_product_attention", "cuda")]
)
def test_edits_are_asked_for_where_files_are_long(kernel, implementation):
    """A prompt about long sources wants edits, and whole files only where most of one changes."""
    context, text = prompt(kernel, implementation)
    assert sum(map(len, context.files.values())) >= assembly.LONG_CHARACTERS
    assert "change them by edits, and leave the rest as it is" in text
    assert text.index("<<<<<<< SEARCH") < text.index("Only if most of a file changes: a whole file")


def test_whole_files_are_asked_for_where_files_are_short():
    """A prompt about short sources takes a whole file as well as edits."""
    context, text = prompt("relu", "triton")
    assert sum(map(len, context.files.values())) < assembly.LONG_CHARACTERS
    assert "change them by edits" not in text
    assert "Or, for small changes, edits in the same fence" in text


def first_lines(context):
    """A line of each file that is there once."""
    found = {}
    for path, text in context.sources.items():
        lines = text.split("\n")
        found[path] = next(line for line in lines if len(line) > 20 and text.count(line) == 1)
    return found


def check(context, draft, lines):
    assert set(draft.changed) == set(context.sources)
    for path, line in lines.items():
        assert draft.files[path] == context.sources[path].replace(line, f"{line} // changed")


def test_edits_of_several_files_in_one_answer():
    """An answer in the very form of the prompt changes two files, with the choice of methods beside it."""
    context, _ = prompt("linear", "cute")
    lines = first_lines(context)
    assert len(lines) == 2
    fences = [
        f"```cuda {path}\n<<<<<<< SEARCH\n{line}\n=======\n{line} // changed\n>>>>>>> REPLACE\n```"
        for path, line in lines.items()
    ]
    check(context, answers.read(answer("\n\n".join(["Faster.", PICKS, *fences])), context.sources), lines)


def test_several_edits_in_one_fence():
    """Edits that follow each other in one fence are all applied, in order."""
    context, _ = prompt("linear", "cute")
    (path, line), *_ = first_lines(context).items()
    twice = "\n".join(
        f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE"
        for old, new in [(line, f"{line} // once"), (f"{line} // once", f"{line} // twice")]
    )
    draft = answers.read(answer(f"```cuda {path}\n{twice}\n```"), context.sources)
    assert draft.changed == (path,)
    assert f"{line} // twice" in draft.files[path]


@pytest.mark.parametrize("by_lines", [False, True])
def test_json_edits_of_several_files(by_lines):
    """Edits in JSON, by text or by line numbers, change two files, with the choice of methods beside them."""
    context, _ = prompt("linear", "cute")
    lines = first_lines(context)
    edits = []
    for path, line in lines.items():
        number = context.sources[path].split("\n").index(line) + 1
        place = {"start_line": number, "end_line": number} if by_lines else {"search": line}
        edits.append({"path": path, **place, "replace": f"{line} // changed"})
    text = f"Faster.\n\n{PICKS}\n\n```json\n{json.dumps({'edits': edits})}\n```"
    check(context, answers.read(answer(text), context.sources), lines)
