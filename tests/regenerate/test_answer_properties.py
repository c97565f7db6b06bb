"""Answers that nobody thought of."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pytest_cgins.core.errors import AnswerError
from pytest_cgins.regenerate.answers import INVISIBLE, read
from tests.regenerate.answers import CU, HEADER, NEW, OLD, answer

LINES = st.text(
    alphabet=st.characters(blacklist_categories=["Cs", "Cc", "Cf", "Zl", "Zp"]), max_size=40
).filter(lambda line: not INVISIBLE.search(line))
CODE = st.lists(
    LINES.filter(lambda line: not line.strip().startswith(("`", "~", "<<<", "===", ">>>"))), max_size=8
)
PROSE = st.text(
    alphabet=st.characters(blacklist_categories=["Cs"], blacklist_characters="`~<>{[@.\\/|"), max_size=200
)
PIECES = st.sampled_from([
    "```", "```cuda\n", f"```cuda {CU}\n", "```json\n", "```diff\n", "~~~", "<<<<<<< SEARCH\n", "=======\n",
    ">>>>>>> REPLACE\n", "<think>", "</think>", "\n", '{"files": {', f'"{CU}": "', '"}}', '{"edits": [', "]}", OLD, NEW,
    f"--- a/{CU}\n+++ b/{CU}\n@@ -1,2 +1,2 @@\n", "@@\n", "-a\n", "+b\n", "&lt;", "\r\n", "\x00", '"', "/*", "*/", "  ",
    f"{CU}:\n", "kernels/other.cu\n", "cgins.yaml", '"start_line": 99999999999999999999,', "\\u12", "\ud800",
])  # fmt: skip


@pytest.mark.exam
@given(before=PROSE, after=PROSE, code=CODE)
@settings(max_examples=150, deadline=None)
def test_any_prose(before: str, after: str, code: list[str]) -> None:
    """Whatever is said around a fenced file, the file is what stands in the fence."""
    source = "\n".join([NEW.rstrip("\n"), *code]).rstrip("\n") + "\n"
    assume("..." not in source and "…" not in source and "&" not in source)
    draft = read(answer(f"{before}\n```cuda {CU}\n{source}```\n{after}"), {CU: OLD})
    assert draft.files == {CU: source}


@given(st.text(max_size=400))
@settings(max_examples=150, deadline=None)
def test_any_text(text: str) -> None:
    """Any text gives a draft or an AnswerError."""
    with suppress(AnswerError):
        read(answer(text), {CU: OLD})


@pytest.mark.exam
@given(st.lists(st.one_of(PIECES, st.text(max_size=10)), max_size=25), st.sampled_from(["stop", "length"]))
@settings(max_examples=400, deadline=None)
def test_any_pieces(pieces: list[str], finish: str) -> None:
    """Marks in any order give a draft or an AnswerError, and touch only own sources."""
    with suppress(AnswerError):
        draft = read(answer("".join(pieces), finish), {CU: OLD, HEADER: "int i;\n"})  # type: ignore[arg-type]
        assert set(draft.files) == {CU, HEADER}
        assert draft.changed


@pytest.mark.exam
@given(
    st.lists(LINES, min_size=2, max_size=30, unique_by=str.strip), st.data(), st.sampled_from(["marks", "json", "lines", "diff"])
)  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_edits(lines: list[str], data: st.DataObject, form: str) -> None:
    """An edit of any lines gives the text that is meant, in each form."""
    begin = data.draw(st.integers(0, len(lines) - 1))
    end = data.draw(st.integers(begin + 1, len(lines)))
    new = data.draw(st.lists(LINES, min_size=1, max_size=4))
    old = lines[begin:end]
    odd = ("<<<", "===", ">>>", "```", "~~~", "---", "+++", "@@", "\\", "&")
    assume(not any(mark in line for line in [*lines, *new] for mark in odd))
    assume(
        "\n".join(old).strip("\n") and lines[0] and lines[-1] and new[0] and new[-1] and old[0] and old[-1]
    )
    source = "\n".join(lines) + "\n"
    wanted = "\n".join([*lines[:begin], *new, *lines[end:]]) + "\n"
    assume(wanted != source and source.count("\n".join(old)) == 1 and "\n".join(new).strip())
    text = {
        "marks": "<<<<<<< SEARCH\n" + "\n".join(old) + "\n=======\n" + "\n".join(new) + "\n>>>>>>> REPLACE",
        "json": json.dumps({"edits": [{"path": CU, "search": "\n".join(old), "replace": "\n".join(new)}]}),
        "lines": json.dumps({"edits": [{"start_line": begin + 1, "end_line": end, "text": "\n".join(new)}]}),
        "diff": "```diff\n@@ @@\n" + "".join(f"-{line}\n" for line in old) + "".join(f"+{line}\n" for line in new) + "```",
    }[form]  # fmt: skip
    assert read(answer(text), {CU: source}).files == {CU: wanted}
