"""Answers that people or coding agents write: Markdown, with a head of YAML if there is more to say than the words.

    ---
    finish: length
    model: some-model
    ---
    The words of the answer …

The head may have `finish`, `model`, `seconds`, `prompt_tokens`, `answer_tokens`, `prompt` (digest of the prompt that
was answered, as `digest_of` gives it) and `error` (there is no answer, for this reason). What begins with `---` and is
no such head belongs to the words.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, get_args

from pytest_cgins.core.errors import ProviderError
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.model import Answer, Finish, Request, Usage
from pytest_cgins.regenerate.provider.failures import LIMIT_NBYTES
from pytest_cgins.regenerate.provider.prices import estimated_tokens

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
        prompt = sum(estimated_tokens(len(one.text)) for one in request.messages)
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
    said = json.dumps([[one.role, one.text] for one in request.messages])
    return hashlib.sha256(said.encode()).hexdigest()


def parse(data: bytes, where: str) -> Written:
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
