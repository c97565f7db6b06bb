"""Recorded conversations: the same answers every time, from files.

The answer to the request `softmax-cpu-cpp/attempt-01/generator` is looked for in this order:

    softmax-cpu-cpp/attempt-01/generator/answer.json   a journal's place: the folder of a run is a recording
    softmax-cpu-cpp/attempt-01/generator/error.json    likewise: the recorded failure
    softmax-cpu-cpp/attempt-01/generator/answer.md     the folder of the exchange provider is one as well
    softmax-cpu-cpp/attempt-01/generator.md            written by hand; see `written`

What prompt a recording answers, if it says that, is not looked at: prompts change with each version.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path, PurePosixPath
from typing import Any, get_args

from pytest_cgins.core.errors import ProviderError
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.conversation import Answer, Finish, Request, Usage
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


def digest_of(request: Request) -> str:
    """sha256 over the words of a prompt and whose they are; the model and its settings are not in it."""
    said = json.dumps([[message.role, message.text] for message in request.messages])
    return hashlib.sha256(said.encode()).hexdigest()


def parse_written(data: bytes, where: str, request: Request) -> tuple[Answer, str]:
    """Read a written answer; tokens are estimated where it does not say them.

    Args:
        data: the file.
        where: its name, for messages.
        request: what it answers.

    Returns:
        The answer, and why there is none, "" if there is one.

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
        is_negative = isinstance(value, int | float) and value < 0
        if not isinstance(value, _KINDS[name]) or isinstance(value, bool) or is_negative:
            raise ProviderError(
                f"{where}: {name} is {value!r}", remedy="correct the head of that file", retry=True
            )
    finish = head.get("finish", "stop" if words.strip() else "empty")
    if finish not in get_args(Finish):
        raise ProviderError(
            f'{where}: finish is "{finish}"', remedy=f"take one of: {', '.join(get_args(Finish))}", retry=True
        )
    prompt, answer = head.get("prompt_tokens"), head.get("answer_tokens")
    asked = sum(estimated_tokens(len(message.text)) for message in request.messages)
    usage = Usage(
        prompt_tokens=asked if prompt is None else prompt,
        cached_tokens=0,
        answer_tokens=estimated_tokens(len(words)) if answer is None else answer,
        usd=None,
        estimated=prompt is None or answer is None,
    )
    model, seconds = head.get("model") or request.model, float(head.get("seconds", 0.0))
    written = Answer(text=words, finish=finish, model=model, usage=usage, seconds=seconds)
    return written, head.get("error", "")


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
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def ask(self, request: Request, folder: Path) -> Answer | None:
        """The recorded answer, always at once.

        Raises:
            ProviderError: there is none, or a failure was recorded.
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
        if answer := files.answer_in(base):
            return answer
        by_hand = base.with_name(f"{base.name}.md")
        for path in (base / "answer.md", by_hand):
            if path.exists():
                answer, error = parse_written(path.read_bytes(), str(path), request)
                if error:
                    raise ProviderError(error, remedy=f"recorded in {path}")
                return answer
        raise ProviderError(
            f"no answer to {request.id} is recorded in {self._folder}",
            remedy=f"write the answer to {by_hand}, or replay another folder",
        )


def file_of(folder: Path, request_id: str) -> Path:
    """Where files of a request lie in a folder; never outside of it."""
    parts = PurePosixPath(request_id).parts
    if not parts or any(part in {"/", ".."} for part in parts):
        raise ProviderError(f'"{request_id}" cannot name a file', remedy="report this")
    return folder.joinpath(*parts)
