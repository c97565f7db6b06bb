"""What answers cost, by prices that the user enters. None are built in: they change, and differ by contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pytest_cgins.config.llm import Price
from pytest_cgins.regenerate.model import Usage


def price_of(prices: Mapping[str, Price], *models: str) -> Price | None:
    """The price of the first of some names of a model that has one."""
    return next((prices[name] for name in models if name in prices), None)


def cost_usd(usage: Usage, price: Price | None) -> float | None:
    """What tokens cost; None without a price."""
    if price is None:
        return None
    cached = price.cached_input_usd_per_million_tokens
    if cached is None:
        cached = price.input_usd_per_million_tokens
    return (
        (usage.prompt_tokens - usage.cached_tokens) * price.input_usd_per_million_tokens
        + usage.cached_tokens * cached
        + usage.answer_tokens * price.output_usd_per_million_tokens
    ) / 1e6


def priced(usage: Usage, price: Price | None) -> Usage:
    """The same with its cost."""
    return replace(usage, usd=cost_usd(usage, price))


def estimated_tokens(nchars: int) -> int:
    """About how many tokens a text of so many characters has: one in four."""
    return -(-nchars // 4)
