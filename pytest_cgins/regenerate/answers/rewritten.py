"""Forms of answers without fences, rewritten into fences and diffs, which the rest reads.

`*** Begin Patch` as Codex writes it, `<file path="…">` as others do, and an answer that is a source and nothing else.
"""

from __future__ import annotations

import ast
import re

from pytest_cgins.core import syntax

PATCH = re.compile(r"^[ \t]*\*\*\* Begin Patch[ \t]*$", re.MULTILINE)
DIRECTIVE = re.compile(
    r"^\*\*\* (Begin Patch|End Patch|End of File|Update File|Add File|Delete File|Move to)\b:?[ \t]*(.*)$"
)
ELEMENT = re.compile(
    r"^[ \t]*<(file|source|code|document)\b[^<>\n]*?\b(?:path|name|file|filename)[ \t]*=[ \t]*[\"']([^\"'\n]+)[\"'][^<>\n]*>[ \t]*\n?"
    r"(.*?)\n?[ \t]*</\1>[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
CDATA = re.compile(r"\A\s*<!\[CDATA\[\n?(.*?)\n?\]\]>\s*\Z", re.DOTALL)
FENCED = re.compile(r"\A\s*(?:`{3,}|~{3,})")
BEGINS_C = re.compile(
    r"^(?://|/\*|#\s*(?:include|pragma|define|if)\b|extern\b|template\b|namespace\b|__global__)", re.MULTILINE
)
ENDS_C = re.compile(r"^.*(?:\}|;|\*/|#endif.*)[ \t]*$", re.MULTILINE)
BEGINS_PYTHON = re.compile(r"^(?:import |from \S+ import |\"\"\"|@\w|def |class )", re.MULTILINE)
FENCE = "~" * 8
MOST_PROSE = 40
"""Lines behind a Python source that are tried to be none of it."""


def with_fences(text: str) -> str:
    """The text with patches as diffs and elements that name a file as fenced blocks."""
    return ELEMENT.sub(_fenced, _with_diffs(text) if PATCH.search(text) else text)


def _with_diffs(text: str) -> str:
    lines: list[str] = []
    is_patch = is_fenced = needs_hunk = False
    for line in text.split("\n"):
        directive = DIRECTIVE.match(line.strip()) if "*** " in line else None
        if directive is None:
            is_fenced ^= not is_patch and FENCED.match(line) is not None
            if is_patch and needs_hunk and line.strip():
                needs_hunk = False
                lines += [] if line.startswith("@@") else ["@@"]
            lines.append(line)
            continue
        name, path = directive[1], directive[2].strip()
        is_patch = name == "Begin Patch" or (is_patch and name != "End Patch")
        needs_hunk = name in ("Update File", "Add File")
        fence = [] if is_fenced else [FENCE]
        lines += {
            "Begin Patch": [f"{mark}diff" for mark in fence],
            "Update File": [f"--- {path}", f"+++ {path}"],
            "Add File": ["--- /dev/null", f"+++ {path}"],
            "Delete File": [f"deleted file mode {path}"],
            "Move to": [f"rename to {path}"],
            "End Patch": fence,
        }.get(name, [])
    return "\n".join(lines)


def _fenced(element: re.Match[str]) -> str:
    path, text = element[2], element[3]
    if plain := CDATA.match(text):
        text = plain[1]
    if FENCED.match(text):
        return f"{path}:\n{text}"
    longest = max((len(mark) for mark in re.findall(r"~{3,}", text)), default=2)
    mark = "~" * max(3, longest + 1)
    return f"{mark} {path}\n{text}\n{mark}"


def whole_source(text: str, path: str) -> str:
    """The source that an answer without any marks is, without prose around it; "" if it is none.

    Args:
        text: of the answer.
        path: of the only source that it may be.
    """
    is_python = path.endswith(".py")
    begins = (BEGINS_PYTHON if is_python else BEGINS_C).search(text)
    if begins is None:
        return ""
    source = text[begins.start() :].rstrip()
    if not is_python:
        ends = [match.end() for match in ENDS_C.finditer(source)]
        return f"{source[: ends[-1]]}\n" if ends and "{" in source else ""
    lines = source.split("\n")
    for end in range(len(lines), max(0, len(lines) - MOST_PROSE), -1):
        tree = syntax.readable("\n".join(lines[:end]))
        if tree is not None:
            is_source = any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in tree.body)
            return "\n".join(lines[: tree.body[-1].end_lineno]) + "\n" if is_source else ""
    return ""
