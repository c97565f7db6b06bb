"""C++ sources as text: what can be read from them without a compiler."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

# A comment that is not closed reaches to the end: else each of many would be looked for anew.
COMMENT_OR_STRING = re.compile(
    r"""//[^\n]*|/\*(?:.*?\*/|.*)|(?P<kept>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])')""", re.DOTALL
)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)

NAMED_FILE = re.compile(
    r'^[ \t]*#[ \t]*(?:include|include_next|import|embed)[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE
)
SYSTEM_FOLDERS = ("/dev", "/proc", "/sys")


def code_of(text: str) -> str:
    """C++ text with comments and literals in quotes blanked out, line by line."""
    return COMMENT_OR_STRING.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def without_comments(text: str) -> str:
    """C++ text with comments blanked out, line by line; what is in quotes stays, whatever it looks like."""
    return COMMENT_OR_STRING.sub(lambda found: found["kept"] or re.sub(r"[^\n]", " ", found[0]), text)


def quoted(text: str) -> str:
    """A text as it stands between the quotation marks of a string literal."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def own_headers(files: Sequence[str], folders: Sequence[Path]) -> list[str]:
    """Texts of the headers that sources include and that lie beside them or in `folders`, with those these include."""
    return [text for file, text in with_headers(files, folders) if str(file) not in files]


def endless_include(files: Sequence[str], folders: Sequence[Path]) -> str:
    """An include, of sources or of their own headers, of a device, a pipe or a file of the system's; "" if there is none."""
    for file, text in with_headers(files, folders):
        for name in NAMED_FILE.findall(text):
            if any(is_endless(folder / name) for folder in (file.parent, *folders)):
                return f"{file} includes {name}"
    return ""


def is_endless(path: Path) -> bool:
    """Whether a path leads, over whatever links, to what may have no end or be waited for: no file that a person wrote."""
    try:
        real = path.resolve()
        if not real.exists() or real.is_dir():
            return False
    except (OSError, RuntimeError, ValueError):  # of names that no file can have
        return False
    of_system = any(real.is_relative_to(folder) for folder in SYSTEM_FOLDERS)
    return not real.is_file() or (of_system and not real.is_relative_to("/dev/shm"))  # noqa: S108


def with_headers(
    files: Sequence[str], folders: Sequence[Path], *, bare: bool = False
) -> Iterator[tuple[Path, str]]:
    """Sources and the headers of `own_headers`, each with its text; `bare` of comments, includes in them too."""
    todo = [Path(file) for file in files]
    seen = {path.resolve() for path in todo}
    while todo:
        file = todo.pop()
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:  # told where it is compiled
            continue
        text = without_comments(text) if bare else text
        yield file, text
        for name in INCLUDE.findall(text):
            for folder in [file.parent, *folders]:
                path = (folder / name).resolve()
                if path.is_file() and not is_endless(path):
                    if path not in seen:
                        seen.add(path)
                        todo.append(path)
                    break
