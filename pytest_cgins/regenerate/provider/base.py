"""What every provider of answers can do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

from pytest_cgins.config.llm import Price
from pytest_cgins.core.document_base import Document
from pytest_cgins.regenerate.conversation import Answer, Request, Usage

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

    @classmethod
    def within(cls, timeout_s: float) -> Limits:
        """Those of answers that take no longer each; with time for a second one, and for pauses that servers ask for."""
        return cls(idle_s=timeout_s, try_s=timeout_s, deadline_s=2 * timeout_s + 300.0)


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


class Provider(Protocol):
    """Answers requests. Each has a *place*, a folder of the journal, where its answer is kept for good."""

    def ask(self, request: Request, folder: Path) -> Answer | None:
        """The answer if it is there, None while it is under way. The same place may be asked again and again.

        Args:
            request: what is asked.
            folder: a folder that is there and has the request as `request.json`.

        Raises:
            ProviderError: there will be no answer.
        """
        ...

    def wait(self, timeout_s: float) -> bool:
        """Wait until something may have changed, at most so long.

        Returns:
            False if answers come by hand: the run is to stop, and to be resumed when they are there.
        """
        ...

    def close(self) -> None:
        """Ask for nothing more. What is under way is not taken back."""
        ...


def priced(usage: Usage, price: Price | None) -> Usage:
    """The same with its cost, which is None without a price."""
    if price is None:
        return replace(usage, usd=None)
    cached = price.cached_input_usd_per_million_tokens
    if cached is None:
        cached = price.input_usd_per_million_tokens
    prompt = (usage.prompt_tokens - usage.cached_tokens) * price.input_usd_per_million_tokens
    answer = usage.answer_tokens * price.output_usd_per_million_tokens
    return replace(usage, usd=(prompt + usage.cached_tokens * cached + answer) / 1e6)


def estimated_tokens(nchars: int) -> int:
    """About how many tokens a text of so many characters has: one in four."""
    return -(-nchars // 4)
