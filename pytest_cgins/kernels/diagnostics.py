"""Compiler output made short: the first errors, with the user's file and line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

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
    lines = code_of(file.read_text(encoding="utf-8")).splitlines()
    pattern = re.compile(rf"\b{re.escape(entry)}\s*\(")
    where = next((number for number, line in enumerate(lines, 1) if pattern.search(line)), None)
    if where is None:
        return f'{shown(str(file))}: no function "{entry}", which its schema line declares'
    return (
        f'{shown(str(file))}:{where}: "{entry}" is not the extern "C" function that the schema line declares'
    )


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
