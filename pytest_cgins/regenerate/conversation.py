"""Requests to models and their answers. Every class is also a file of the journal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_cgins.core.document_base import Document

Role = Literal["generator", "helper", "verifier"]
"""Who is asked: for a kernel; for advice on a failure; for an opinion before hardware is used."""


Finish = Literal["stop", "length", "refusal", "filtered", "tool-calls", "empty"]
"""Why an answer ended: by itself; cut off; the model would not; the provider would not; it called tools; no text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Document):
    """One message of a prompt."""

    role: Literal["system", "user", "assistant"]
    """Whose words they are."""
    text: str
    """The words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Document):
    """What a model is asked."""

    id: str
    """Unique in its run, and the same when the run is resumed: `softmax-cpu-cpp/attempt-01/generator`."""
    role: Role
    """Who is asked."""
    model: str
    """Name of the model, as its provider knows it; "" for a person or an agent."""
    messages: tuple[Message, ...]
    """The prompt."""
    max_tokens: int
    """Most tokens of the answer."""
    temperature: float | None = None
    """None: the provider's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage(Document):
    """What an answer took."""

    prompt_tokens: int
    """Tokens of the prompt, cached ones among them."""
    cached_tokens: int
    """Those of the prompt that the provider had cached."""
    answer_tokens: int
    """Tokens of the answer, those of hidden thought among them."""
    usd: float | None
    """By the user's price table; None where that has no price of the model."""
    estimated: bool = False
    """Whether the provider told nothing, and tokens are estimated from the texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Document):
    """What a model answered."""

    text: str
    """Its words; what it said instead, where it refused."""
    finish: Finish
    """Why it ended."""
    model: str
    """The model that answered, as the provider names it."""
    usage: Usage
    """What it took, lost tries among it."""
    seconds: float
    """From the first try to the last word."""
    tries: int = 1
    """Times that it was asked for, over errors of the network and limits of the provider."""
