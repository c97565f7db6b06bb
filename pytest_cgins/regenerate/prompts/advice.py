"""What a helper answered: what to do next, and what not to try again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pytest_cgins.regenerate.model import Advice
from pytest_cgins.regenerate.prompts import blocks

_MOST_ADVICE = 6000
_MOST_AVOIDED = 10
_MOST_LINE = 300
_TEXT_KEYS = ("advice", "text", "suggestion", "fix", "diagnosis", "analysis")
_AVOID_KEYS = ("do_not_repeat", "avoid", "dont_repeat", "do not repeat", "not_again")
_AVOID_HEADING = re.compile(
    r"^\W*(?:do\W?n[o']?t\s+(?:repeat|try(?:\s+again)?)|do\s+not\s+(?:repeat|try(?:\s+again)?)|avoid)\W*(?P<rest>.*)$",
    re.IGNORECASE,
)
_BULLET = re.compile(r"^\s*(?:[-*•+]|\d{1,3}[.)])\s+(?P<text>.*\S)")
_HEADING = re.compile(r"^\s*(?:#{1,6}\s+\S|\*\*[^*]+\*\*:?\s*$)")
_LONGEST_ANSWER = 1 << 20
_MOST_OBJECTS = 50


def read_advice(answer_text: str) -> Advice:
    """Advice from an answer in whatever form: JSON, in a fence or in prose, or plain sections; never raises."""
    text = blocks.clean(answer_text[:_LONGEST_ANSWER])
    for answer in _objects(text):
        advice = _of_object(answer)
        if advice is not None:
            return advice
    return _of_sections(text)


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """JSON objects in a text, wherever they begin."""
    decoder = json.JSONDecoder(strict=False)
    start = text.find("{")
    for _ in range(_MOST_OBJECTS):
        if start < 0:
            return
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            start = text.find("{", start + 1)
            continue
        if isinstance(value, dict):
            yield value
        start = text.find("{", end)


def _of_object(answer: dict[str, Any]) -> Advice | None:
    lowered = {str(key).lower(): value for key, value in answer.items()}
    text = next((lowered[key] for key in _TEXT_KEYS if lowered.get(key)), None)
    avoid = next((lowered[key] for key in _AVOID_KEYS if lowered.get(key)), ())
    if text is None and not avoid:
        return None
    advice = "\n".join(map(_plain, text)) if isinstance(text, list) else _plain(text or "")
    listed = [avoid] if isinstance(avoid, str) else list(avoid) if isinstance(avoid, (list, tuple)) else []
    return _bounded(advice, [_plain(way) for way in listed])


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _of_sections(text: str) -> Advice:
    """Bullets under a heading such as "Do not repeat" are what to avoid; all else is advice."""
    kept: list[str] = []
    avoid: list[str] = []
    inside = False
    for line in text.splitlines():
        heading = _AVOID_HEADING.match(line)
        # "Avoid bank conflicts by padding" is advice; a heading is short, or ends before its list.
        if heading and (not heading["rest"] or line.rstrip().endswith((":", "**", ":**"))):
            inside = True
            continue
        bullet = _BULLET.match(line)
        if inside and bullet:
            avoid.append(bullet["text"])
        elif inside and line.strip() and (_HEADING.match(line) or not line[:1].isspace()):
            inside = False
            kept.append(line)
        elif not inside:
            kept.append(line)
        elif line.strip() and avoid:
            avoid[-1] += f" {line.strip()}"
    return _bounded("\n".join(kept), avoid)


def _bounded(text: str, avoid: list[str]) -> Advice:
    lines = [blocks.one_line(line, _MOST_LINE) for line in avoid]
    return Advice(
        text=blocks.head(text.strip(), _MOST_ADVICE),
        avoid=tuple(line for line in dict.fromkeys(lines) if line)[:_MOST_AVOIDED],
    )
