"""Recorded conversations: the same answers every time, from files.

The answer to the request `softmax-cpu-cpp/attempt-01/generator` is looked for in this order:

    softmax-cpu-cpp/attempt-01/generator/answer.json   a journal's place: the folder of a run is a recording
    softmax-cpu-cpp/attempt-01/generator/error.json    likewise: the recorded failure
    softmax-cpu-cpp/attempt-01/generator/answer.md     the folder of the exchange provider is one as well
    softmax-cpu-cpp/attempt-01/generator.md            written by hand; see `written`

A recording that knows its prompt (`request.json` beside it, `prompt` in its head) is held against the one that is
asked: with `strict` another prompt is an error, else a line in `notes`.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, get_args

from pytest_cgins.core import documents
from pytest_cgins.core.errors import JournalError, ProviderError
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.model import Answer, Finish, Request, Usage
from pytest_cgins.regenerate.provider import files
from pytest_cgins.regenerate.provider.base import estimated_tokens
from pytest_cgins.regenerate.provider.failures import LIMIT_NBYTES

_HEAD = re.compile(r"---[ \t]*\n(.*?\n)---[ \t]*(?:\n|\Z)", re.DOTALL)
_KINDS: dict[str, type | tuple[type, ...]] = {
    "finish": str,
    "model": str,
    "seconds": (int, float),
    "prompt_tokens": int,
    "answer_tokens": int,
    "prompt": str,
    "error": str,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """An answer as it was written."""

    text: str
    """Its words."""
    finish: Finish
    """Why it ended."""
    model: str
    """Who answered; "" if it does not say."""
    seconds: float
    """How long it took; 0 if it does not say."""
    prompt_tokens: int | None
    """Tokens of the prompt; None if it does not say."""
    answer_tokens: int | None
    """Tokens of the answer, likewise."""
    prompt: str
    """Digest of the prompt; "" if it does not say."""
    error: str
    """Why there is no answer; "" if there is one."""

    def answer(self, request: Request) -> Answer:
        """The same as an answer to a request; tokens are estimated where it does not say them."""
        known = self.prompt_tokens is not None and self.answer_tokens is not None
        prompt = sum(estimated_tokens(len(message.text)) for message in request.messages)
        usage = Usage(
            prompt_tokens=prompt if self.prompt_tokens is None else self.prompt_tokens,
            cached_tokens=0,
            answer_tokens=estimated_tokens(len(self.text))
            if self.answer_tokens is None
            else self.answer_tokens,
            usd=None,
            estimated=not known,
        )
        return Answer(
            text=self.text,
            finish=self.finish,
            model=self.model or request.model,
            usage=usage,
            seconds=self.seconds,
        )


def digest_of(request: Request) -> str:
    """sha256 over the words of a prompt and whose they are; the model and its settings are not in it."""
    said = json.dumps([[message.role, message.text] for message in request.messages])
    return hashlib.sha256(said.encode()).hexdigest()


def parse_written(data: bytes, where: str) -> Written:
    """Read a written answer.

    Args:
        data: the file.
        where: its name, for messages.

    Raises:
        ProviderError: it is too large, not UTF-8, or its head is wrong.
    """
    if len(data) > LIMIT_NBYTES:
        raise ProviderError(
            f"{where}: an answer of {counted(len(data), 'byte')} is larger than {LIMIT_NBYTES}",
            remedy="shorten it",
            retry=True,
        )
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ProviderError(f"{where} is not UTF-8: {error}", remedy="save it as UTF-8", retry=True) from None
    head, words = _split(text)
    for name, value in head.items():
        if (
            not isinstance(value, _KINDS[name])
            or isinstance(value, bool)
            or (isinstance(value, (int, float)) and value < 0)
        ):
            raise ProviderError(
                f"{where}: {name} is {value!r}", remedy="correct the head of that file", retry=True
            )
    finish = head.get("finish", "stop" if words.strip() else "empty")
    if finish not in get_args(Finish):
        raise ProviderError(
            f'{where}: finish is "{finish}"', remedy=f"take one of: {', '.join(get_args(Finish))}", retry=True
        )
    return Written(
        text=words,
        finish=finish,
        model=head.get("model", ""),
        seconds=float(head.get("seconds", 0.0)),
        prompt_tokens=head.get("prompt_tokens"),
        answer_tokens=head.get("answer_tokens"),
        prompt=head.get("prompt", "").removeprefix("sha256:"),
        error=head.get("error", ""),
    )


def _split(text: str) -> tuple[dict[str, Any], str]:
    """The head, and the words; an answer may begin with a rule that is none."""
    match = _HEAD.match(text)
    if not match or len(match[1]) > 10_000:
        return {}, text
    import yaml

    try:
        head = yaml.safe_load(match[1])
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}, text
    if not isinstance(head, dict) or not head or not head.keys() <= _KINDS.keys():
        return {}, text
    return head, text[match.end() :].lstrip("\n")


class Replay:
    """Answers from a folder.

    Args:
        folder: of the recordings.
        strict: whether a prompt that differs from the recorded one is an error.
    """

    def __init__(self, folder: Path, *, strict: bool = False) -> None:
        self._folder = folder
        self._strict = strict
        self.notes: list[str] = []
        """What a person should know, one line each."""

    def ask(self, request: Request, folder: Path) -> Answer | None:
        """The recorded answer, always at once.

        Raises:
            ProviderError: there is none, or it answers another prompt, or a failure was recorded.
        """
        if files.is_settled(folder):
            return files.answer_in(folder)
        answer = self._recorded(request, file_of(self._folder, request.id))
        files.write_json(folder / files.ANSWER, answer)
        return answer

    def wait(self, timeout_s: float) -> bool:  # noqa: ARG002
        """Nothing is ever under way."""
        return True

    def close(self) -> None:
        """Nothing is held."""

    def _recorded(self, request: Request, base: Path) -> Answer:
        by_hand = base.with_name(f"{base.name}.md")
        if (base / files.ANSWER).exists() or (base / files.ERROR).exists():
            self._hold_against(request, base, "")
            answer = files.answer_in(base)
            assert answer is not None
            return answer
        for path in (base / "answer.md", by_hand):
            if not path.exists():
                continue
            found = parse_written(path.read_bytes(), str(path))
            self._hold_against(request, base, found.prompt)
            if found.error:
                raise ProviderError(found.error, remedy=f"recorded in {path}")
            return found.answer(request)
        raise ProviderError(
            f"no answer to {request.id} is recorded in {self._folder}",
            remedy=f"write the answer to {by_hand}, or replay another folder",
        )

    def _hold_against(self, request: Request, base: Path, known: str) -> None:
        if not known and (base / files.REQUEST).exists():
            try:
                known = digest_of(documents.load(Request, (base / files.REQUEST).read_bytes()))
            except ValueError as error:
                raise JournalError(
                    f"{base / files.REQUEST} is damaged: {str(error)[:300]}", remedy="delete that file"
                ) from None
        now = digest_of(request)
        if not known or known == now:
            return
        what = f"{request.id}: the recorded answer is to another prompt ({known[:12]}) than is asked now ({now[:12]})"
        if self._strict:
            raise ProviderError(what, remedy="record the conversation again, or replay without strict")
        if what not in self.notes:
            self.notes.append(what)


def file_of(folder: Path, request_id: str) -> Path:
    """Where files of a request lie in a folder; never outside of it."""
    parts = PurePosixPath(request_id).parts
    if not parts or any(part in {"/", ".."} for part in parts):
        raise ProviderError(f'"{request_id}" cannot name a file', remedy="report this")
    return folder.joinpath(*parts)
