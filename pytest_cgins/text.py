"""Small pieces of wording that many messages share."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, known: Iterable[str]) -> str:
    """`did you mean "…"?` for the most similar known word, else the empty string."""
    matches = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f'did you mean "{matches[0]}"?' if matches else ""
