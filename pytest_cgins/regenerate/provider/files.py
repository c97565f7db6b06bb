"""The files of a place: what was asked, what came of it, and who is at it.

request.json  the request
sent.json     written before the first try: an answer may have been paid for
request.lock  held while a process asks
lost.json     what was asked in vain: answers whose process died, and failures that were taken back
tries.log     a line a try that failed, for people
answer.json   the answer
error.json    why there is none, finally
"""

from __future__ import annotations

import json
import math
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pytest_cgins.core import atomic, documents, locks
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.errors import JournalError, ProviderError
from pytest_cgins.core.text import text_of
from pytest_cgins.regenerate.conversation import Answer, Request, Usage

T = TypeVar("T")

REQUEST = "request.json"
ANSWER = "answer.json"
ERROR = "error.json"
SENT = "sent.json"
LOST = "lost.json"
LOCK = "request.lock"
TRIES = "tries.log"
MOST_LOST = 3
"""So often may an answer be lost before its place is given up: by then it is no accident."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure(Document):
    """Why there is no answer."""

    what: str
    """What happened."""
    remedy: str
    """What to do."""
    retry: bool
    """Whether asking later may do."""
    tries: int
    """Times that it was asked for."""
    usage: Usage | None
    """What the lost tries took; None if nothing was lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostAnswers(Document):
    """What a request has taken so far without an answer, apart from its failure, if that stands."""

    count: int = 0
    """Answers that were under way when nobody was left to take them."""
    tries: int = 0
    """Times that it was asked for, those among them; of a failure that was taken back all its tries."""
    usage: Usage | None = None
    """What all of it took; None if nothing."""


def answer_in(folder: Path) -> Answer | None:
    """The answer that a place has, if it has one.

    Raises:
        ProviderError: it has a final failure instead.
        JournalError: its file is damaged.
    """
    if (answer := _load(Answer, folder / ANSWER)) is not None:
        return answer
    if failure := failure_in(folder):
        raise ProviderError(failure.what, remedy=failure.remedy, retry=failure.retry)
    return None


def failure_in(folder: Path) -> Failure | None:
    """Why a place has no answer, if that is final."""
    return _load(Failure, folder / ERROR)


def request_in(folder: Path) -> Request:
    """What is asked at a place."""
    request = _load(Request, folder / REQUEST)
    if request is None:
        raise JournalError(f"{folder / REQUEST} is not there", remedy="start a new run")
    return request


def is_settled(folder: Path) -> bool:
    """Whether there is an answer or a final failure."""
    return (folder / ANSWER).exists() or (folder / ERROR).exists()


def retract_failure(folder: Path) -> None:
    """Take back a final failure, so that it is asked for again, as when the remedy was heeded. Its cost stays known."""
    failure = failure_in(folder)
    if failure is None:
        return
    before = lost_in(folder)
    kept = replace(before, tries=max(before.tries, failure.tries), usage=failure.usage or before.usage)
    if kept != before:
        write_json(folder / LOST, kept)
    (folder / ERROR).unlink()
    (folder / SENT).unlink(missing_ok=True)


def lost_in(folder: Path) -> LostAnswers:
    """What was asked in vain at a place."""
    return _load(LostAnswers, folder / LOST) or LostAnswers()


def note_lost(folder: Path, lost: LostAnswers) -> None:
    """Keep what was asked in vain so far; what was sent has been dealt with."""
    if lost != lost_in(folder):
        write_json(folder / LOST, lost)
    (folder / SENT).unlink(missing_ok=True)


def taken_in(folder: Path) -> Usage | None:
    """What the request of a place has taken so far, as long as it has no answer; None if nothing is known of."""
    failure = failure_in(folder)
    # A failure's usage has in it what was lost before.
    return (failure.usage if failure is not None else None) or lost_in(folder).usage


def tries_in(folder: Path) -> str:
    """What was told of the tries of a place that failed, a line each; "" where none has."""
    return text_of(folder / TRIES)


def is_held(folder: Path) -> bool:
    """Whether a process is asking the request of a place."""
    return locks.is_locked(folder / LOCK)


def held(folder: Path) -> AbstractContextManager[bool]:
    """Be the only one who asks the request of a place; waits for another to end."""
    return locks.holding(folder / LOCK, math.inf)


def write_json(path: Path, document: object) -> None:
    """Write a document whole or not at all, indented for people."""
    atomic.write_text(path, f"{documents.dump(document, indent=2)}\n", durable=True)


def mark_sent(folder: Path, model: str, when: str) -> None:
    """Say that a request is about to be sent."""
    atomic.write_text(folder / SENT, json.dumps({"model": model, "when": when}) + "\n", durable=True)


def _load(cls: type[T], path: Path) -> T | None:
    try:
        return documents.load(cls, path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise JournalError(
            f"{path} is damaged: {str(error)[:300]}", remedy="delete that file, and resume"
        ) from None
