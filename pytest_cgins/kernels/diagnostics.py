"""Compiler output made short: the first errors, with the user's file and line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from pytest_cgins.kernels import schema as schemas
from pytest_cgins.kernels.source import code_of

ERROR = re.compile(
    r"""^(?:
        .+?:\d+(?::\d+)?:\s(?:fatal\s)?error:\s        # gcc, clang
      | .+?\(\d+\):\s(?:catastrophic\s)?error(?:\s\#[\w-]+)?:\s   # nvcc's front end
      | (?:ptxas|nvlink|nvcc)\s.*(?:error|fatal)\s*:   # nvcc's other stages
      | .*\bld(?:\.\w+)?:\s                            # linker
      | .*undefined\sreference\sto\s
      | .*(?:unrecognized|unknown)\s.*option
    )""",
    re.VERBOSE | re.IGNORECASE,
)
DEFINITION = re.compile(r"\b([A-Za-z_]\w*)\s*\([^;{}()]*\)\s*\{")
CONTROL_WORDS = {"if", "for", "while", "switch", "catch"}
CONTEXT_LINES = 5
SHOWN_ERRORS = 3


def summarize(log: str, files: Sequence[str], entry: str) -> tuple[int, str]:
    """The first errors of a compiler's output.

    Args:
        log: all that it printed.
        files: absolute paths of the user's sources; they are shown relative to the current folder.
        entry: the launcher's function, "" for other contracts.

    Returns:
        How many errors there are, and the text of the first few, each with the lines that explain it.
    """
    if entry and f"required symbol `{entry}' not defined" in log:
        return 1, _not_exported(Path(files[0]), entry)
    lines = log.splitlines()
    starts = [number for number, line in enumerate(lines) if ERROR.match(line)]
    if not starts:
        return 0, "\n".join(lines[-CONTEXT_LINES:])
    blocks = []
    for number in starts[:SHOWN_ERRORS]:
        following = lines[number + 1 : number + CONTEXT_LINES + 1]
        ends = (index for index, line in enumerate(following) if ERROR.match(line) or not line.strip())
        block = [lines[number], *following[: next(ends, CONTEXT_LINES)]]
        blocks.append("\n".join(line[:300] for line in block))
    return len(starts), _with_short_paths("\n".join(blocks), files)


def _not_exported(file: Path, entry: str) -> str:
    """What to say when the linker finds no function of the schema's name."""
    text = file.read_text(encoding="utf-8")
    code = code_of(text)
    pattern = re.compile(rf"\b{re.escape(entry)}\s*\(")
    where = next((number for number, line in enumerate(code.splitlines(), 1) if pattern.search(line)), None)
    if where is None:
        _, schema_line = schemas.locate(text, file)
        return (
            f'{shown(str(file))}:{schema_line}: the schema line declares "{entry}", but the file defines no such '
            f"function{_nearest_function(code, entry)}"
        )
    return (
        f'{shown(str(file))}:{where}: "{entry}" is not the extern "C" function that the schema line declares'
    )


def _nearest_function(code: str, entry: str) -> str:
    """The defined function whose name is most like `entry`, with its line; "" if none is like it."""
    found = {match[1]: code.count("\n", 0, match.start(1)) + 1 for match in DEFINITION.finditer(code)}
    names = get_close_matches(entry, found.keys() - CONTROL_WORDS, n=1)
    return f'; did you mean "{names[0]}" in line {found[names[0]]}?' if names else ""


def shown(file: str) -> str:
    """A path as a person would write it: relative to the current folder if it lies below."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except ValueError:
        return file


def _with_short_paths(text: str, files: Sequence[str]) -> str:
    text = re.sub(r"^([^\s(]+)\((\d+)\): ", r"\1:\2: ", text, flags=re.MULTILINE)  # nvcc's way
    for folder in {str(Path(file).parent) for file in files}:
        short = shown(folder)
        if short != folder:
            text = text.replace(f"{folder}/", "" if short == "." else f"{short}/")
    return text
