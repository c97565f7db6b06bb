"""C++ sources as text: what can be read from them without a compiler."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

# A comment that is not closed reaches to the end: else each of many would be looked for anew.
COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*(?:.*?\*/|.*)|"(?:\\.|[^"\\\n])*"', re.DOTALL)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)


def code_of(text: str) -> str:
    """C++ text with comments and string literals blanked out, line by line."""
    return COMMENT_OR_STRING.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def without_comments(text: str) -> str:
    """C++ text with comments blanked out, line by line."""
    return COMMENT_OR_STRING.sub(
        lambda found: found[0] if found[0].startswith('"') else re.sub(r"[^\n]", " ", found[0]), text
    )


def own_headers(files: Sequence[str], folders: Sequence[Path]) -> list[str]:
    """Texts of the headers that sources include and that lie beside them or in `folders`, with those these include."""
    texts: list[str] = []
    todo = [Path(file) for file in files]
    seen = {path.resolve() for path in todo}
    while todo:
        file = todo.pop()
        text = file.read_text(encoding="utf-8", errors="replace")
        if str(file) not in files:
            texts.append(text)
        for name in INCLUDE.findall(text):
            for folder in [file.parent, *folders]:
                path = (folder / name).resolve()
                if path.is_file():
                    if path not in seen:
                        seen.add(path)
                        todo.append(path)
                    break
    return texts
