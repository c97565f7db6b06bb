"""What the tests of the documents read: Markdown tables, and the tests that documents name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path


def document(name: str) -> str:
    return (files("pytest_cgins") / "docs" / name).read_text(encoding="utf-8")


def sections(text: str) -> dict[str, str]:
    """Text below each `##` heading."""
    parts = re.split(r"(?m)^##+ +(.+)$", text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(text: str) -> Iterator[list[str]]:
    """Cells of each row; headings and rules are left out."""
    lines = text.splitlines()
    for index, line in enumerate(lines):
        if not line.startswith("|") or re.fullmatch(r"[|\-: ]+", line):
            continue
        if index + 1 < len(lines) and re.fullmatch(r"[|\-: ]+", lines[index + 1]):
            continue
        yield [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


@cache
def functions(file: Path) -> frozenset[str]:
    """Names of the functions of a file of tests; none if there is no such file."""
    tree = ast.parse(file.read_text(encoding="utf-8")) if file.is_file() else ast.Module()
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
