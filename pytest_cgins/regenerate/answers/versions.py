"""Which text is meant for a file where an answer gives several, and whether it is a whole one.

1. Texts equal to the source as it is are quotations, and do not count if there are others.
2. Named blocks go before blocks without a name, complete ones before parts. A text is complete if it has the schema
   line, where the source has one; Python, if it parses and defines the functions that the source defines.
3. Of several that differ, the last counts if the words above it call it final or corrected, or those above all others
   call them a draft, the original or an alternative. Else the answer is refused: a guess would cost an attempt as well,
   and would judge what the model did not mean.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_cgins.core import syntax
from pytest_cgins.core.errors import AnswerError
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.answers import own_files

FINAL = re.compile(
    r"\b(?:final(?:ly)?|corrected|correct(?:ion)?|complete|full|fixed|revised|updated|improved|instead|actual)\b",
    re.IGNORECASE,
)
DRAFT = re.compile(
    r"\b(?:draft|sketch|first (?:attempt|version|try)|original|current|before|previous|old|wrong|naive|alternativ\w*|"
    r"option|variant|comparison|slower|simplified|snippet|example|excerpt|idea)\b",
    re.IGNORECASE,
)
ELIDED = re.compile(
    r"^[ \t]*(?://|\#|/\*)[ \t]*(?:(?:\.{3}|…)[^\n]*\b(?:rest|existing|unchanged|same|remain\w*|omitted|as before|previous|"
    r"here)\b|[^\n]{0,20}\b(?:rest|remainder) of (?:the )?(?:file|code|kernel|source|function)\b[^\n]*(?:unchanged|same|"
    r"as before|omitted|here|stays|\.{3}|…))",
    re.MULTILINE | re.IGNORECASE,
)
SCHEMA = re.compile(r"^[ \t]*//[ \t]*cgins:", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A text that an answer gives for a file."""

    text: str
    """All of it."""
    is_named: bool
    """Whether the answer says which file it is."""
    above: str
    """The words above it."""


def ended(text: str) -> str:
    """A text with one line end at its end, and no blank lines around it."""
    text = text.strip("\n")
    return text + "\n" if text else ""


def chosen(path: str, wholes: Sequence[Whole], source: str, *, has_edits: bool) -> str:
    """The text that is meant for a file.

    Args:
        path: of the file.
        wholes: the texts that the answer gives for it, in order.
        source: what it is now.
        has_edits: whether the answer also has edits of it, besides which a part is an illustration.

    Raises:
        AnswerError: `two-versions` or `part-of-file`.
    """
    named = [whole for whole in wholes if whole.is_named]
    left = named or list(wholes)
    left = [whole for whole in left if ended(whole.text) != ended(source)] or left
    complete = [whole for whole in left if _is_complete(path, whole.text, source)]
    if not complete and has_edits:
        return source
    if not complete and all(_is_part(path, whole.text, source) for whole in left):
        raise _part(path, "it lacks what the source has to have")
    left = complete or left
    texts = {ended(whole.text) for whole in left}
    meant = left[-1]
    if len(texts) > 1:
        last_is_final = FINAL.search(meant.above) and not DRAFT.search(meant.above)
        others = [whole for whole in left if ended(whole.text) != ended(meant.text)]
        if not last_is_final and not all(DRAFT.search(whole.above) for whole in others):
            raise AnswerError(
                f"the answer gives {counted(len(texts), 'version')} of `{path}`, and does not say which one is meant",
                code="two-versions",
                remedy="give each file once",
            )
    elided = ELIDED.search(meant.text)
    if elided and elided[0] not in source:
        raise _part(path, own_files.shown(elided[0]))
    return meant.text


def _is_complete(path: str, text: str, source: str) -> bool:
    if path.endswith(".py"):
        names = _functions(text)
        return names is not None and (_functions(source) or set()) <= names
    return SCHEMA.search(text) is not None or not SCHEMA.search(source)


def _is_part(path: str, text: str, source: str) -> bool:
    """Whether a text cannot be all of a file: no schema line, or none of the functions that there were."""
    if path.endswith(".py"):
        names, before = _functions(text), _functions(source)
        return names is not None and bool(before) and not names & (before or set())
    return SCHEMA.search(source) is not None and SCHEMA.search(text) is None


def _part(path: str, why: str) -> AnswerError:
    return AnswerError(
        f"the answer gives only a part of `{path}`: {why}",
        code="part-of-file",
        remedy="give the whole file from its first line (`// cgins: …`) to its last, or SEARCH/REPLACE blocks",
    )


def _functions(text: str) -> set[str] | None:
    """Public functions and classes at the top level; None if it does not parse."""
    tree = syntax.readable(text)
    if tree is None:
        return None
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return {node.name for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")}
