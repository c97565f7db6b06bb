"""The dresses in which models give sources, all of which are read."""

from __future__ import annotations

import html
import json

import pytest

from pytest_cgins.regenerate.answers import read
from tests.regenerate.answers import CU, HEADER, NEW, NEW_PY, OLD, OLD_PY, PY, answer

THOUGHT = f"<think>\nPerhaps so:\n```cuda {CU}\nint wrong;\n```\nNo.\n</think>\n"
EDIT = '<<<<<<< SEARCH\n  if (i < n) y[i] = x[i];\n=======\n  if (i < n) y[i] = 2 * x[i];  // "twice"\n>>>>>>> REPLACE\n'
JSON_FILES = json.dumps({"files": {CU: NEW}})
JSON_LIST = json.dumps({"files": [{"path": CU, "content": NEW}]}, indent=2)
JSON_EDITS = json.dumps(
    {"edits": [{"path": CU, "search": "y[i] = x[i];", "replace": 'y[i] = 2 * x[i];  // "twice"'}]}
)
LINE = '  if (i < n) y[i] = 2 * x[i];  // "twice"'
DIFF = f"""--- a/{CU}
+++ b/{CU}
@@ -4,4 +4,4 @@
 __global__ void rows(const float* x, float* y, int n) {{
   const int i = blockIdx.x;
-  if (i < n) y[i] = x[i];
+{LINE}
 }}
"""
PATCH = f"""*** Begin Patch
*** Update File: {CU}
@@ void rows
   const int i = blockIdx.x;
-  if (i < n) y[i] = x[i];
+{LINE}
 }}
*** End Patch
"""
DRESSES = {
    "info": f"```cuda {CU}\n{NEW}```",
    "info with prose": f"Here it is.\n\n```cuda {CU}\n{NEW}```\n\nIt is faster.",
    "info path only": f"```{CU}\n{NEW}```",
    "info colon": f"```cuda:{CU}\n{NEW}```",
    "info title": f'```cpp title="{CU}"\n{NEW}```',
    "info file": f"```c++ file={CU} linenums=1\n{NEW}```",
    "info braces": f'```{{.cuda path="{CU}"}}\n{NEW}```',
    "line above": f"{CU}:\n```cuda\n{NEW}```",
    "bold above": f"**`{CU}`**\n\n```cuda\n{NEW}```",
    "bold name with colon": f"**File: {CU}**:\n```cuda\n{NEW}```",
    "heading": f"### File: {CU}\n```cpp\n{NEW}```",
    "heading with note": f"## 1. `{CU}` (updated)\n```cpp\n{NEW}```",
    "list item": f"1. `{CU}`:\n\n   ```cuda\n" + "".join(f"   {line}\n" for line in NEW.splitlines()) + "   ```",
    "sentence above": f"This is the new `{CU}`, with a grid:\n```cuda\n{NEW}```",
    "first comment": f"```cuda\n// {CU}\n{NEW}```",
    "first comment file": f"```cuda\n// File: {CU}\n{NEW}```",
    "block comment": f"```cuda\n/* {CU} */\n{NEW}```",
    "no name": f"```cuda\n{NEW}```",
    "no language": f"```\n{NEW}```",
    "language cu": f"```cu\n{NEW}```",
    "language C++": f"```C++\n{NEW}```",
    "language cpp": f"```cpp\n{NEW}```",
    "tildes": f"~~~cuda {CU}\n{NEW}~~~",
    "four backticks": f"````cuda {CU}\n{NEW}````",
    "indented fence": f"  ```cuda {CU}\n{NEW}  ```",
    "in markdown": f"````markdown\n# Answer\n```cuda {CU}\n{NEW}```\n````",
    "in markdown, same fence": f"```markdown\n# Answer\n```cuda {CU}\n{NEW}```\n```",
    "CRLF": f"```cuda {CU}\n{NEW}```".replace("\n", "\r\n"),
    "CR": f"```cuda {CU}\n{NEW}```".replace("\n", "\r"),
    "BOM": f"\ufeff```cuda {CU}\n\ufeff{NEW}```",
    "escaped block": f"Use <this>:\n```cuda {CU}\n{html.escape(NEW)}```",
    "escaped throughout": f"```cuda {CU}\n{html.escape(NEW)}```",
    "thought": f"{THOUGHT}```cuda {CU}\n{NEW}```",
    "thought without beginning": f"Hm.\n```cuda\nint wrong;\n```\n</think>\n```cuda {CU}\n{NEW}```",
    "two thoughts": f"{THOUGHT}So.\n{THOUGHT}```cuda {CU}\n{NEW}```",
    "channels": f"<|channel|>analysis<|message|>```\nint wrong;\n```<|end|><|channel|>final<|message|>```cuda {CU}\n{NEW}```",
    "Windows path": "```cuda kernels\\softmax.cu\n" + NEW + "```",
    "dot path": f"```cuda ./{CU}\n{NEW}```",
    "absolute path": f"```cuda /home/me/project/{CU}\n{NEW}```",
    "drive": "```cuda C:\\work\\kernels\\softmax.cu\n" + NEW + "```",
    "bare name": f"```cuda softmax.cu\n{NEW}```",
    "not closed": f"```cuda {CU}\n{NEW}",
    "shell beside": f"Build it:\n```bash\nnvcc softmax.cu\n```\n```cuda {CU}\n{NEW}```\n```text\nok\n```",
    "snippet beside": f"The idea:\n```cuda\ny[i] = 2 * x[i];\n```\nAll of it:\n```cuda\n{NEW}```",
    "quotation beside": f"It was:\n```cuda\n{OLD}```\nand is\n```cuda\n{NEW}```",
    "draft and final": f"First version:\n```cuda\n{OLD.replace('32', '64')}```\nThe final, corrected one:\n```cuda\n{NEW}```",
    "draft before": f"A first draft:\n```cuda {CU}\n{OLD.replace('32', '64')}```\nWith that in mind:\n```cuda {CU}\n{NEW}```",
    "twice the same": f"```cuda {CU}\n{NEW}```\nOnce more:\n```cuda {CU}\n{NEW}```",
    "fence forgotten": f"```cuda\nint i;\n\n### {CU}\n```cuda {CU}\n{NEW}```",
    "edit": EDIT,
    "edit in fence": f"```cuda\n{EDIT}```",
    "edit with info": f"```cuda {CU}\n{EDIT}```",
    "edit with name above": f"{CU}\n```\n{EDIT}```",
    "edit with name beside": EDIT.replace("SEARCH", f"SEARCH {CU}"),
    "edit with name in fence": f"```cuda\n// {CU}\n{EDIT}```",
    "edit with trailing space": EDIT.replace("x[i];\n=", "x[i];   \n="),
    "edit with indentation off": EDIT.replace("\n  if", "\n      if"),
    "edit without indentation": EDIT.replace("\n  if", "\nif"),
    "edit with blank lines": EDIT.replace("SEARCH\n", "SEARCH\n\n").replace("=\n", "=\n\n"),
    "edit escaped": html.escape(EDIT),
    "edit with the result beside": f"{EDIT}\nWhich gives\n```cuda {CU}\n{NEW}```",
    "edits in order": EDIT.replace("2 * x", "3 * x") + "<<<<<<< SEARCH\ny[i] = 3 * x[i];\n=======\ny[i] = 2 * x[i];\n>>>>>>> REPLACE",
    "edit with a snippet beside": f"This line\n```cuda\ny[i] = x[i];\n```\nbecomes another:\n{EDIT}",
    "JSON files": JSON_FILES,
    "JSON in fence": f"```json\n{JSON_FILES}\n```",
    "JSON in bare fence": f"Here:\n```\n{JSON_LIST}\n```",
    "JSON with prose": f"Here it is:\n{JSON_LIST}\nDone.",
    "JSON list": JSON_LIST,
    "JSON plain map": json.dumps({CU: NEW}),
    "JSON one file": json.dumps({"path": CU, "content": NEW}),
    "JSON code only": json.dumps({"code": NEW}),
    "JSON with a fence": json.dumps({"files": {CU: f"```cuda\n{NEW}```"}}),
    "JSON lines": json.dumps({"files": {CU: NEW.splitlines()}}),
    "JSON trailing commas": JSON_LIST.replace("\n    }", ",\n    }").replace("\n  ]", ",\n  ]"),
    "JSON raw line ends": '{"files": {"' + CU + '": "' + NEW.replace('"', '\\"') + '"}}',
    "JSON raw quotes": '{"files": {"' + CU + '": "' + NEW + '"}}',
    "JSON raw quotes in list": '{"files": [\n{"path": "' + CU + '", "content": "' + NEW + '"\n},\n]}',
    "JSON edits": JSON_EDITS,
    "JSON edits in a fence": f"```json\n{JSON_EDITS}\n```",
    "JSON edits of a file": json.dumps({"path": CU, "edits": [{"old_str": "x[i];", "new_str": '2 * x[i];  // "twice"'}]}),
    "JSON line edits": json.dumps({"edits": [{"path": CU, "start_line": 6, "end_line": 6, "text": LINE}]}),
    "JSON line edits, two": json.dumps(
        {
            "edits": [
                {"path": CU, "start_line": 4, "end_line": 5, "text": "\n".join(OLD.splitlines()[3:5])},
                {"path": CU, "start_line": 6, "end_line": 6, "text": LINE + "\n"},
            ]
        }
    ),
    "diff": f"```diff\n{DIFF}```",
    "diff bare": f"Apply this:\n\n{DIFF}",
    "diff wrong counts": f"```diff\n{DIFF.replace('-4,4 +4,4', '-1,9 +1,7')}```",
    "diff no numbers": f"```diff\n{DIFF.replace('@@ -4,4 +4,4 @@', '@@ ... @@')}```",
    "diff no header": "```diff\n" + DIFF.partition("\n")[2].partition("\n")[2] + "```",
    "diff with git": f"```diff\ndiff --git a/{CU} b/{CU}\nindex 1..2 100644\n{DIFF}```",
    "diff wrong context": f"```diff\n{DIFF.replace('__global__ void rows', '__global__ void row')}```",
    "diff lost spaces": f"```diff\n{DIFF.replace(chr(10) + ' __global__', chr(10) + '__global__')}```",
    "diff in own fence": f"```\n{DIFF}```",
    "patch": PATCH,
    "patch with prose": f"Here is it.\n\n{PATCH}\nThat doubles it.",
    "patch in fence": f"```\n{PATCH}```",
    "patch in fence of a name": f"```patch\n{PATCH}```",
    "patch without hunk line": PATCH.replace("@@ void rows\n", ""),
    "patch without context": PATCH.replace("   const int i = blockIdx.x;\n", ""),
    "patch ends the file": PATCH.replace("*** End Patch", "*** End of File\n*** End Patch"),
    "element": f'<file path="{CU}">\n{NEW}</file>',
    "element with prose": f'Changed:\n\n<file path="{CU}">\n{NEW}</file>\n\nIt doubles.',
    "element with attributes": f"<file type='cuda' name='{CU}'>\n{NEW}</file>",
    "element source": f'<source file="{CU}">\n{NEW}\n</source>',
    "element with a fence": f'<file path="{CU}">\n```cuda\n{NEW}```\n</file>',
    "element with CDATA": f'<file path="{CU}"><![CDATA[\n{NEW}]]></file>',
    "element in elements": f'<answer>\n<file path="{CU}">\n{NEW}</file>\n</answer>',
    "source alone": NEW,
    "source with prose": f"Here is the kernel:\n\n{NEW}\nIt doubles every element.",
    "test beside": f"```cuda {CU}\n{NEW}```\nAnd a test:\n```python test_softmax.py\nimport torch\n```",
    "test beside, in comment": f"```cuda {CU}\n{NEW}```\n```python\n# tests/test_softmax.py\nassert True\n```",
    "benchmark beside": f"**bench_softmax.cu**\n```cuda\nint main() {{}}\n```\n```cuda {CU}\n{NEW}```",
}  # fmt: skip


@pytest.mark.parametrize("dress", DRESSES.values(), ids=list(DRESSES))
def test_dress(dress: str) -> None:
    """Whatever the dress, the source that is meant comes out, byte for byte."""
    draft = read(answer(dress), {CU: OLD})
    assert draft.files == {CU: NEW}
    assert draft.changed == (CU,)


@pytest.mark.parametrize(
    "besides",
    [
        "```python test_softmax.py\nx = 1\n```",
        "**tests/test_softmax.py**\n```python\nx = 1\n```",
        "```cuda\n// bench_softmax.cu\nint main() {}\n```",
        "```diff\n--- /dev/null\n+++ b/tests/softmax_test.cpp\n@@ -0,0 +1 @@\n+int x;\n```",
        '<file path="benchmark.py">\nx = 1\n</file>',
        "*** Begin Patch\n*** Add File: tests/test_softmax.py\n+x = 1\n*** End Patch",
    ],
)
def test_a_test_that_comes_with_the_kernel_is_left_out_and_told(besides: str) -> None:
    """It costs no attempt: nothing but the kernel's own sources is ever taken."""
    for text in (f"```cuda {CU}\n{NEW}```\n{besides}", f"{besides}\n```cuda {CU}\n{NEW}```"):
        if besides.startswith("***") and text.startswith("```"):
            continue  # beside a fence a bare diff is an illustration
        draft = read(answer(text), {CU: OLD})
        assert draft.files == {CU: NEW}


def test_what_is_left_out_is_named() -> None:
    """Of JSON, too."""
    files = {CU: NEW, "tests/test_softmax.py": "x = 1"}
    for text in (
        json.dumps({"files": files}),
        json.dumps([{"path": path, "content": files[path]} for path in files]),
    ):
        assert read(answer(text), {CU: OLD}).left_out == ("tests/test_softmax.py",)


@pytest.mark.parametrize(
    "behind", ["", "\nIt fills the output with zeros.\n", "\n# Notes\n\nDone, and it is faster.\n"]
)
def test_a_python_source_without_a_fence(behind: str) -> None:
    """Prose behind it is no part of it."""
    assert read(answer(f"Here it is:\n\n{NEW_PY}{behind}"), {PY: OLD_PY}).files == {PY: NEW_PY}


def test_two_files() -> None:
    """Several files come in one answer; one that is left out stays as it is."""
    text = f"```cuda {CU}\n{NEW}```\n\n**{HEADER}**\n```cpp\nint two;\n```"
    draft = read(answer(text), {CU: OLD, HEADER: "int one;\n", PY: OLD_PY})
    assert draft.files == {CU: NEW, HEADER: "int two;\n", PY: OLD_PY}
    assert draft.changed == (CU, HEADER)


def test_language_tells_the_file() -> None:
    """A block without a name is the one file that its language fits."""
    draft = read(answer(f"```triton\n{NEW_PY}```\n```cuda\n{NEW}```"), {CU: OLD, PY: OLD_PY})
    assert draft.files == {CU: NEW, PY: NEW_PY}


def test_edit_finds_its_file() -> None:
    """An edit without a name belongs to the one file that has its lines."""
    text = "<<<<<<< SEARCH\nint one;\n=======\nint two;\n>>>>>>> REPLACE"
    draft = read(answer(text), {CU: OLD, HEADER: "int one;\n"})
    assert draft.changed == (HEADER,)


def test_new_file() -> None:
    """For a kernel that is not there yet, whole files, a diff from nothing and an empty search are taken."""
    lines = "".join(f"+{line}\n" for line in NEW.splitlines())
    for text in (
        f"```cuda\n{NEW}```",
        f"<<<<<<< SEARCH\n=======\n{NEW}>>>>>>> REPLACE",
        f"```diff\n--- /dev/null\n+++ b/{CU}\n@@ -0,0 +1,12 @@\n{lines}```",
    ):
        assert read(answer(text), {CU: ""}).files == {CU: NEW}


def test_fences_in_the_code() -> None:
    """Fences in comments of a kernel do not end it."""
    for inside in (
        "/*\n```\nsoftmax(x)\n```\n*/\n",
        "/*\nUse:\n```cpp\nsoftmax(x)\n```\n*/\n",
        "// ```\n// softmax(x)\n// ```\n",
    ):
        source = NEW + inside
        assert read(answer(f"So:\n```cuda {CU}\n{source}```\nDone."), {CU: OLD}).files == {CU: source}
    module = f'"""Softmax.\n\n```\nsoftmax(x)\n```\n"""\n{NEW_PY}'
    assert read(answer(f"```python\n{module}```\nDone."), {PY: OLD_PY}).files == {PY: module}


def test_line_ends_are_kept() -> None:
    """A source with CRLF stays one."""
    draft = read(answer(EDIT), {CU: OLD.replace("\n", "\r\n")})
    assert draft.files == {CU: NEW.replace("\n", "\r\n")}


def test_tabs_are_kept() -> None:
    """Tabs in a source are not touched."""
    source = NEW.replace("  ", "\t")
    assert read(answer(f"```cuda\n{source}```"), {CU: OLD}).files == {CU: source}


def test_cut_off_after_the_code() -> None:
    """An answer cut off in the prose behind its code is used."""
    assert read(answer(f"```cuda {CU}\n{NEW}```\nThis is", "length"), {CU: OLD}).files == {CU: NEW}
