"""Markdown tables, as the tests of the documents read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files


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
