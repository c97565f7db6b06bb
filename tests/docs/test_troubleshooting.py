"""troubleshooting.md: the messages that it quotes are ours, word by word."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path

import pytest
from tables import document, sections

import pytest_cgins

TEXT = document("troubleshooting.md")
QUOTES = re.findall(r"(?m)^> (.+)$", TEXT)
# Words of the driver, not ours; and what is put together from two places.
FOREIGN = {"CUDA error: an illegal memory access was encountered"}
ASSEMBLED = {
    "SKIPPED … cases: no … device on this machine": ("SKIPPED … cases: …", "no … device on this machine"),
    "the … worker was killed by SIGKILL (killed from outside), during …": (
        "the … worker …, during …",
        "was killed by … (…)",
        "killed from outside",
    ),
    "not calibrated, in … cases: …; a spread between processes is assumed → cgins calibrate": (
        "not calibrated,",
        "in … cases: …; a spread between processes is assumed → cgins calibrate",
    ),
    "NOT GATED …/…: its contract covers none of its …: …": (
        "NOT GATED",
        "…/…: …",
        "its contract covers none of its …: …",
    ),
    "NOTHING GATED: …": ("NOTHING GATED:",),
    "WEAKER …": ("WEAKER",),
    "BASE NOT READ: …: …": ("BASE NOT READ:", "…: …"),
    "MISSING …: …": ("MISSING", "…: …"),
    "note: cases are not compared with the base revision: …": (
        "note:",
        "cases are not compared with the base revision: …",
    ),
    "STALE … after it was tested: run again": ("STALE", "… after it was tested: run again"),
    "the … worker was killed by SIGSEGV (…), during …": ("the … worker …, during …", "was killed by … (…)"),
}


@lru_cache(maxsize=1)
def literals() -> str:
    """Every text of the package, one a line, with `…` where a value is put in."""
    found = []
    for path in Path(pytest_cgins.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(_part(part) for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(re.sub(r"%(\.\d)?[sdrf]", "…", text) for text in found)


def _part(part: ast.expr) -> str:
    if isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Call):
        match part.value:
            case ast.Call(func=ast.Name(id="counted"), args=[_, ast.Constant(value=noun)]):
                return f"… {noun}s"
            case ast.Call(func=ast.Name(id="counted"), args=[_, _, ast.Constant(value=nouns)]):
                return f"… {nouns}"
    return str(part.value) if isinstance(part, ast.Constant) else "…"


@pytest.mark.parametrize("quote", QUOTES)
def test_quoted_messages_are_in_the_code(quote: str) -> None:
    """A person who searches this document for what was printed finds it."""
    if quote in FOREIGN:
        return
    for text in ASSEMBLED.get(quote, (quote,)):
        assert text in literals(), f"{text!r} is nowhere in the code"


def test_every_entry_has_cause_and_remedy() -> None:
    """Each quotation is followed by what it comes from and what to do."""
    entries = re.split(r"(?m)^> .+$", TEXT)[1:]
    assert len(entries) == len(QUOTES) > 20
    for quote, entry in zip(QUOTES, entries, strict=True):
        assert "**Cause.**" in entry, quote
        assert "**Remedy.**" in entry, quote


def test_topics() -> None:
    """What goes wrong most often has its section."""
    headings = " ".join(sections(TEXT)).lower()
    for topic in ("cuda", "compilers", "memory", "counters", "drift", "weak", "noisy", "crashed", "cache"):
        assert topic in headings
