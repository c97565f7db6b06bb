"""What a server sent, read as an answer: a whole body, or events of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pytest_cgins.regenerate.conversation import Finish, Request, Usage
from pytest_cgins.regenerate.provider.base import estimated_tokens
from pytest_cgins.regenerate.provider.failures import LIMIT_NBYTES, Trouble, of_error_object, too_large

_FILTERED = {"content_filter", "safety", "recitation", "blocklist", "prohibited_content", "spii"}
_CALLS = {"tool_calls", "function_call", "tool_use"}
_CUT = {"length", "max_tokens", "model_length"}
MOST_CHARACTERS_PER_TOKEN = 8
"""Source code has three or four on the average. A stream with more is longer than was asked for, and is ended."""


@dataclass(slots=True)
class Reply:
    """What has been read so far."""

    texts: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    """Names and arguments of tools, as they came."""
    reason: str = ""
    """The server's own word for why it ended; "" as long as it has not."""
    model: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    nchars: int = 0
    """Characters of all that came, hidden thought among it."""

    @property
    def text(self) -> str:
        """The answer's words; of a refusal what was said instead; of tools what they were called with."""
        return "".join(self.refusals) or "".join(self.texts) or "".join(self.calls)

    @property
    def finish(self) -> Finish:
        """Why it ended."""
        reason = self.reason.lower()
        if "".join(self.refusals).strip() or reason == "refusal":
            return "refusal"
        if reason in _FILTERED:
            return "filtered"
        if reason in _CALLS or (self.calls and not "".join(self.texts).strip()):
            return "tool-calls"
        if reason in _CUT:
            return "length"
        return "stop" if "".join(self.texts).strip() else "empty"

    def is_beyond(self, max_tokens: int) -> bool:
        """Whether more came than so many tokens, by the server's own count or by any tokenizer's."""
        told = _number(self.usage.get("completion_tokens")) or 0
        return told > max_tokens or self.nchars > MOST_CHARACTERS_PER_TOKEN * max_tokens

    def add(self, data: object, part: str) -> None:
        """Take in a whole completion (`part` is `message`) or a piece of one (`delta`).

        Raises:
            Trouble: it is none, or an error in place of one.
        """
        if not isinstance(data, dict):
            raise Trouble(f"the answer is not a JSON object but {type(data).__name__}", retry=True, lost=True)
        if error := data.get("error"):
            raise of_error_object(error)
        choices = data.get("choices")
        if not isinstance(choices, list):
            if part == "delta":  # Some servers send events of their own in between.
                return
            raise Trouble(f"the answer has no choices: {json.dumps(data)[:200]}", retry=True, lost=True)
        self.model = _text(data.get("model")) or self.model
        if isinstance(usage := data.get("usage"), dict):
            self.usage = usage
        if choices and isinstance(choices[0], dict):
            self._add_choice(choices[0], choices[0].get(part))

    def _add_choice(self, choice: dict[str, Any], said: object) -> None:
        self.reason = _text(choice.get("finish_reason")) or self.reason
        if not isinstance(said, dict):
            return
        self._put(self.texts, _content(said.get("content")))
        self._put(self.refusals, _text(said.get("refusal")))
        self.nchars += len(_text(said.get("reasoning_content")) or _text(said.get("reasoning")))
        calls = said.get("tool_calls")
        functions = (
            [call.get("function") for call in calls if isinstance(call, dict)]
            if isinstance(calls, list)
            else []
        )
        for function in (*functions, said.get("function_call")):
            if isinstance(function, dict):
                self._put(self.calls, _text(function.get("name")), _text(function.get("arguments")))

    def _put(self, where: list[str], *words: str) -> None:
        for word in filter(None, words):
            where.append(word)
            self.nchars += len(word)
        if self.nchars > LIMIT_NBYTES:
            raise too_large()


def whole(body: bytes) -> Reply:
    """Read a body that was not streamed.

    Raises:
        Trouble: it is no completion.
    """
    reply = Reply()
    reply.add(_parse(body), "message")
    return reply


def events(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The data of the events of a stream, however it is cut into pieces."""
    rest = b""
    data: list[bytes] = []
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            line = line.rstrip(b"\r")  # noqa: PLW2901
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                yield b"\n".join(data)
                data = []
    # The last event's empty line is often forgotten.
    if rest.startswith(b"data:"):
        data.append(rest[5:].strip())
    if data:
        yield b"\n".join(data)


def streamed(pieces: Iterable[bytes], reply: Reply, max_tokens: int) -> None:
    """Read a stream into a reply, which has what came before it if the stream breaks.

    Nothing is read beyond `max_tokens`: a server that does not heed them stops when nobody listens.

    Raises:
        Trouble: it broke off, or is no stream of a completion.
    """
    for data in events(pieces):
        if data.strip() == b"[DONE]":
            reply.reason = reply.reason or "stop"
            break
        reply.add(_parse(data), "delta")
        if not reply.reason and reply.is_beyond(max_tokens):
            reply.reason = "length"
            break
    if not reply.reason:
        raise Trouble("the stream ended before the answer did", retry=True, lost=True, broke=True)


def usage_of(reply: Reply, request: Request) -> Usage:
    """What a reply took, as the server tells it; estimated from the texts if it does not, or tells nonsense."""
    told = [_number(reply.usage.get(name)) for name in ("prompt_tokens", "completion_tokens")]
    prompt, answer = told
    if prompt is None or answer is None:
        return estimated(request, reply.nchars)
    details = reply.usage.get("prompt_tokens_details")
    cached = _number(details.get("cached_tokens")) if isinstance(details, dict) else None
    if cached is None:
        cached = _number(reply.usage.get("prompt_cache_hit_tokens"))
    # Some leave hidden thought out of the answer's tokens, and have it in the total.
    total = _number(reply.usage.get("total_tokens")) or 0
    return Usage(
        prompt_tokens=prompt,
        cached_tokens=min(cached or 0, prompt),
        answer_tokens=max(answer, total - prompt),
        usd=None,
    )


def estimated(request: Request, nchars: int = 0) -> Usage:
    """What a request may take, and so many characters of its answer."""
    return Usage(
        prompt_tokens=sum(estimated_tokens(len(message.text)) for message in request.messages),
        cached_tokens=0,
        answer_tokens=estimated_tokens(nchars),
        usd=None,
        estimated=True,
    )


def total(one: Usage, other: Usage) -> Usage:
    """Two usages as one; their cost is to be found anew."""
    return Usage(
        prompt_tokens=one.prompt_tokens + other.prompt_tokens,
        cached_tokens=one.cached_tokens + other.cached_tokens,
        answer_tokens=one.answer_tokens + other.answer_tokens,
        usd=None,
        estimated=one.estimated or other.estimated,
    )


def _parse(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        shown = data[:120].decode(errors="replace")
        raise Trouble(f"the answer is not JSON ({error}): {shown!r}", retry=True, lost=True) from None


def _content(value: object) -> str:
    """Text, or a list of parts of which some are text."""
    if isinstance(value, list):
        return "".join(
            _text(part.get("text")) for part in value if isinstance(part, dict) and part.get("type") == "text"
        )
    return _text(value)


def _text(value: object) -> str:
    # A lone half of a surrogate pair can be in JSON, and cannot be in a file.
    return value.encode(errors="replace").decode() if isinstance(value, str) else ""


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None
