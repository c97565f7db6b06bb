"""Answers that are refused, with a code for scripts and words for the next prompt."""

from __future__ import annotations

import contextlib
import json
import time

import pytest

from pytest_cgins.core.errors import AnswerError
from pytest_cgins.regenerate.answers import read
from pytest_cgins.regenerate.conversation import Finish
from tests.regenerate.answers import CU, HEADER, NEW, OLD, OLD_PY, PY, answer

BLOCK = f"```cuda {CU}\n{NEW}```\n"
EDIT = "<<<<<<< SEARCH\n  if (i < n) y[i] = x[i];\n=======\n  if (i < n) y[i] = 2 * x[i];\n>>>>>>> REPLACE\n"
TWICE = OLD + "\n__global__ void more(float* y) {\n  const int i = blockIdx.x;\n}\n"
AMBIGUOUS = "<<<<<<< SEARCH\n  const int i = blockIdx.x;\n=======\n  const int i = 0;\n>>>>>>> REPLACE"


def refused(text: str, finish: Finish = "stop", sources: dict[str, str] | None = None) -> AnswerError:
    with pytest.raises(AnswerError) as caught:
        read(answer(text, finish), sources or {CU: OLD})
    assert caught.value.remedy
    assert len(str(caught.value)) < 4000
    return caught.value


REFUSALS: dict[str, tuple[str, str, str]] = {
    "yaml beside": (BLOCK + "```yaml cgins.yaml\ntolerance: 1\n```", "foreign-file", "`cgins.yaml`"),
    "yaml above": (BLOCK + "**cgins.yaml**\n```yaml\ntolerance: 1\n```", "foreign-file", "`cgins.yaml`"),
    "yaml in words": (BLOCK + "Also update `cgins.yaml`:\n```yaml\na: 1\n```", "foreign-file", "`cgins.yaml`"),
    "configuration in comment": (BLOCK + "```python\n# tests/conftest.py\nx = 1\n```", "foreign-file", "tests/conftest.py"),
    "test alone": ("```python tests/test_x.py\nx = 1\n```", "no-code", "no source"),
    "edit of a test": (EDIT + "\ntests/test_x.py\n" + EDIT, "foreign-file", "`tests/test_x.py`"),
    "patch deletes": (f"*** Begin Patch\n*** Delete File: {CU}\n*** End Patch", "foreign-file", "deletes"),
    "patch moves": (
        f"*** Begin Patch\n*** Update File: {CU}\n*** Move to: x.cu\n@@\n-a\n+b\n*** End Patch", "foreign-file", "renames",
    ),
    "patch elsewhere": (
        "*** Begin Patch\n*** Update File: tests/test_x.py\n@@\n-a\n+b\n*** End Patch", "foreign-file", "tests/test_x.py",
    ),
    "element elsewhere": ('<file path="cgins.yaml">\na: 1\n</file>', "foreign-file", "`cgins.yaml`"),
    "prose with code": ("Use `y[i] = 2 * x[i];` in the loop {here}.", "no-code", "no source"),
    "trace": (BLOCK + "```json traces/resnet50/manifest.json\n{}\n```", "foreign-file", "manifest.json"),
    "parent": (f"```cuda ../{CU}\n{NEW}```", "foreign-file", "../kernels"),
    "hidden parent": (f"```cuda kernels/../{CU}\n{NEW}```", "foreign-file", "kernels/.."),
    "absolute": (f"```cuda /etc/softmax.c\n{NEW}```", "foreign-file", "/etc/softmax.c"),
    "other folder": (f"```cuda tests/{CU}\n{NEW}```", "foreign-file", f"change only `{CU}`"),
    "case": (f"```cuda kernels/Softmax.cu\n{NEW}```", "foreign-file", "Softmax"),
    "edit elsewhere": (EDIT + "\ncgins.yaml\n" + EDIT, "foreign-file", "`cgins.yaml`"),
    "JSON elsewhere": (json.dumps({"files": {CU: NEW, "conftest.py": "x"}}), "foreign-file", "`conftest.py`"),
    "JSON edit elsewhere": (
        json.dumps({"edits": [{"path": "conftest.py", "search": "a", "replace": "b"}]}),
        "foreign-file",
        "`conftest.py`",
    ),
    "diff elsewhere": ("```diff\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n```", "foreign-file", "`x.py`"),
    "diff deletes": (f"```diff\n--- a/{CU}\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n```", "foreign-file", "deletes"),
    "diff renames": (
        f"```diff\n--- a/{CU}\n+++ b/kernels/s.cu\n@@ -1 +1 @@\n-a\n+b\n```",
        "foreign-file",
        "kernels/s.cu",
    ),
    "diff of a link": (
        f"```diff\nnew file mode 120000\n--- /dev/null\n+++ b/{CU}\n@@ -0,0 +1 @@\n+/etc/passwd\n```",
        "foreign-file",
        "mode",
    ),
    "no code": ("I would use a grid.", "no-code", "fenced block"),
    "only a command": ("```bash\nnvcc softmax.cu\n```", "no-code", "fenced block"),
    "only thought": (f"<think>\n{BLOCK}", "no-code", "no source"),
    "JSON without files": ('{"files": []}', "no-code", "no files"),
    "broken JSON": ('{"files": {"a.cu": "int a', "broken-json", "escape quotes"),
    "unchanged": (f"```cuda {CU}\n{OLD}```", "unchanged", "changes nothing"),
    "edit to the same": (AMBIGUOUS.replace("int i = 0", "int i = blockIdx.x"), "unchanged", "changes nothing"),
    "edit not found": (EDIT.replace("y[i] = x", "z[i] = x"), "edit-not-found", "nearest is at line"),
    "edit of nothing like it": (EDIT.replace("  if (i < n) y[i] = x[i];", "@@@"), "edit-not-found", "Nothing like"),
    "edit of nothing": (EDIT.replace("  if (i < n) y[i] = x[i];\n=", "="), "edit-not-found", "searches for nothing"),
    "edit not closed": (EDIT.partition("=======")[0], "truncated", "not closed"),
    "line edit beyond": (
        json.dumps({"edits": [{"path": CU, "start_line": 40, "end_line": 41, "text": "x"}]}),
        "edit-lines",
        "lines 40 to 41",
    ),
    "line edits overlap": (
        json.dumps({"edits": [{"start_line": 4, "end_line": 6, "text": "x"}, {"start_line": 6, "end_line": 7, "text": "y"}]}),
        "edit-lines",
        "overlap",
    ),
    "two versions": (BLOCK + BLOCK.replace("32", "64"), "two-versions", "2 versions"),
    "two versions in JSON": (f'{{"files": {{"{CU}": "a", "{CU}": "b"}}}}', "two-versions", "twice"),
    "part": ("```cuda\n__global__ void rows() {}\n```", "part-of-file", "only a part"),
    "left out": (BLOCK.replace("extern", "// ... rest of the code unchanged ...\nextern"), "part-of-file", "unchanged"),
    "too large": (BLOCK.replace("32", "3" * 300_000), "too-large", "262144"),
    "NUL": (BLOCK.replace("32", "\x00"), "control-characters", "U+0000"),
    "escape": (BLOCK.replace("32", "\x1b[2K"), "control-characters", "line 10"),
    "bidi": (BLOCK.replace("32", "32 /*\u202e*/"), "invisible-characters", "U+202E (right-to-left override)"),
    "zero width": (BLOCK.replace("rows<<<", "ro\u200bws<<<"), "invisible-characters", "U+200B"),
    "tag": (BLOCK.replace("32", "32 /*\U000e0041*/"), "invisible-characters", "U+E0041"),
    "surrogate": (json.dumps({"files": {CU: NEW + "// \ud800"}}), "control-characters", "U+D800"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "code", "words"), REFUSALS.values(), ids=list(REFUSALS))
def test_refusal(text: str, code: str, words: str) -> None:
    """What cannot be used is refused with a stable code, and says what to do."""
    error = refused(text)
    assert error.code == code
    assert words in str(error)


def test_ambiguous_edit() -> None:
    """An edit that fits two places names both lines."""
    error = refused(AMBIGUOUS, sources={CU: TWICE})
    assert error.code == "edit-ambiguous"
    assert "lines 5, 15" in str(error)


def test_a_diff_goes_to_the_nearest_place() -> None:
    """A hunk's line number decides between places that fit alike."""
    diff = f"```diff\n--- a/{CU}\n+++ b/{CU}\n@@ -14,2 +14,2 @@\n-  const int i = blockIdx.x;\n+  const int i = 0;\n```"
    lines = read(answer(diff), {CU: TWICE}).files[CU].splitlines()
    assert "blockIdx" in lines[4]
    assert lines[14] == "  const int i = 0;"


@pytest.mark.parametrize("finish", ["refusal", "filtered", "tool-calls", "empty"])
def test_no_answer(finish: Finish) -> None:
    """An answer that is none is refused by the reason for which it ended, whatever its text is."""
    assert refused(BLOCK, finish).code == finish


def test_empty() -> None:
    """White space is an empty answer."""
    assert refused(" \n").code == "empty"


@pytest.mark.parametrize(
    "text",
    [
        BLOCK.removesuffix("```\n"),
        BLOCK + "```cpp kernels/rows.cuh\nint i",
        EDIT.partition("=======")[0],
        EDIT.partition(">>>>>>>")[0],
        json.dumps({"files": {CU: NEW}})[:-20],
        "<think>\nLet me see",
    ],
    ids=["fence", "second fence", "search", "replace", "JSON", "thought"],
)
def test_truncated(text: str) -> None:
    """An answer that was cut off inside its code is refused, even if a part of it could be used."""
    error = refused(text, "length", {CU: OLD, HEADER: "int i;\n"})
    assert error.code == "truncated"
    assert "SEARCH/REPLACE" in str(error)


def test_which_file() -> None:
    """A block that may be of two files is refused, and so is a bare name that two have."""
    sources = {CU: OLD, HEADER: "int i;\n", "more/softmax.cu": OLD}
    assert refused("```cuda\nint j;\n```", sources=sources).code == "which-file"
    assert refused("```cuda softmax.cu\nint j;\n```", sources=sources).code == "which-file"
    assert refused('{"code": "int j;"}', sources=sources).code == "which-file"


def test_edit_without_a_file() -> None:
    """An edit whose lines two files have is refused."""
    error = refused(
        "<<<<<<< SEARCH\nint i;\n=======\n>>>>>>> REPLACE", sources={CU: "int i;\n", HEADER: "int i;\n"}
    )
    assert error.code == "edit-ambiguous"


def test_part_of_a_module() -> None:
    """A snippet of Python without any of the module's functions is a part."""
    assert refused("```python\nx = torch.empty(3)\n```", sources={PY: OLD_PY}).code == "part-of-file"


def test_characters_that_were_there() -> None:
    """What the source already has is not held against an edit elsewhere."""
    source = OLD + "// \u200b\n"
    assert "\u200b" in read(answer(EDIT), {CU: source}).files[CU]


def test_names_in_messages_are_tamed() -> None:
    """A name in a message has no control characters, and is cut to a length."""
    error = refused(f"```cuda file={'x' * 300}\x1b[31m.py\n{NEW}```")
    assert error.code == "foreign-file"
    assert "\x1b" not in str(error)
    assert "…" in str(error)


@pytest.mark.exam
@pytest.mark.parametrize(
    "text",
    [
        "<think>\n" * 60_000,
        "<think>\n" * 30_000 + "</think>x" * 10_000,
        "```\n" * 60_000,
        "```cuda\n/*\n" * 30_000,
        "<<<<<<< SEARCH\n" * 30_000,
        "--- a\n+++ b\n" * 40_000,
        "{" * 300_000,
        '{"files": "' + 'a"b' * 100_000,
        '{"files": [' + '"",' * 100_000,
        "a" * 400_000 + "\n```\nx\n```",
        "```cuda\n" + "}\n" * 100_000 + "```\n<<<<<<< SEARCH\n" + "}\n" * 50_000 + "x\n=======\n>>>>>>> REPLACE",
        "\n" * 400_000 + "```\n" + ";\n\n" * 100_000,
    ],
    ids=range(12),
)  # fmt: skip
def test_hostile_sizes(text: str) -> None:
    """Answers made to be slow to read take no long time."""
    begin = time.monotonic()
    with contextlib.suppress(AnswerError):
        read(answer(text), {CU: OLD + "}\n" * 100_000})
    assert time.monotonic() - begin < 20
