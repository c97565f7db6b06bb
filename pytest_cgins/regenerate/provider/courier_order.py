"""What the courier is told: one line of JSON a request. No key is in it, only the name of its variable."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pytest_cgins.config.llm import Price
from pytest_cgins.core.document_base import Document

TokensField = Literal["max_tokens", "max_completion_tokens"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(Document):
    """How long, and how often."""

    connect_s: float = 10.0
    """Until a connection stands."""
    idle_s: float = 300.0
    """Between two pieces of a streamed answer, and until the first: some models think for minutes before."""
    try_s: float = 1800.0
    """One try, from its beginning to the last word."""
    deadline_s: float = 3600.0
    """All tries and the pauses between them."""
    tries: int = 6
    """Most tries that may fail."""
    pause_s: float = 1.0
    """Before the second try; doubled for each that follows, at most `longest_pause_s`, less a random part."""
    longest_pause_s: float = 60.0
    """Where the server does not name one itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(Document):
    """A request that the courier is to ask."""

    place: str
    """Absolute path of its folder."""
    base_url: str
    """Of the server, with `/v1` or what it has instead."""
    api_key_env: str
    """Variable that holds the key; "" for a server without keys."""
    stream: bool
    """Whether the answer is to come in pieces."""
    tokens_field: TokensField
    """How the server calls the most tokens of an answer."""
    limits: Limits = field(default_factory=Limits)
    """How long, and how often."""
    price: Price | None = None
    """Of the model; None if unknown."""
