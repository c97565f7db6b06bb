"""`budget` and `prices` of the section `llm`, and the readers of numbers that it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

from pytest_cgins.config.document import Section, Value
from pytest_cgins.config.llm import Budget, LlmSettings, Price
from pytest_cgins.config.llm_checks import wrong_with_model

BUDGET_KEYS = ("repair_attempts", "candidates", "rounds", "branches", "tokens", "usd", "minutes")
PRICE_KEYS = ("input", "cached_input", "output")
MOST_TIMES = 1000
MOST_TOKENS = 10**12
MOST_USD = 1e6
MOST_MINUTES = 1e6
MOST_USD_PER_MILLION = 1e6

T = TypeVar("T")


def read(section: Section, key: str, reader: Callable[[Value], T], default: T) -> T:
    """What a key says, `default` where it is not there."""
    value = section.get(key)
    return default if value is None else reader(value)


def within(value: Value, least: float, most: float) -> float:
    """A number between two others, or one of them."""
    number = value.amount()
    if not least <= number <= most:
        _refuse(value, f"not within {least:g} to {most:g}", f"write {least:g} to {most:g}")
    return number


def whole(least: int, most: int) -> Callable[[Value], int]:
    """A reader of whole numbers between two others, or one of them."""

    def number(value: Value) -> int:
        found = value.integer()
        if not least <= found <= most:
            _refuse(value, f"not within {least} to {most}", f"write {least} to {most}")
        return found

    return number


def _refuse(value: Value, why: str, remedy: str) -> NoReturn:
    value.fail(f'"{value.key}" in {value.section.title} is {value.scalar()}, {why}', remedy=remedy)


def _limit(value: Value, most: float) -> float | None:
    """An amount above 0; None for `none`."""
    if value.scalar().strip() == "none":
        return None
    number = value.amount()
    if not 0 < number <= most:
        _refuse(value, f"not above 0 and up to {most:g}", "write a number above 0, or none for no limit")
    return number


def _tokens(value: Value) -> int | None:
    return None if value.scalar().strip() == "none" else whole(1, MOST_TOKENS)(value)


def budget(value: Value | None, unsaid: Budget) -> Budget:
    """The section `budget`; `unsaid` has what it does not say.

    Raises:
        ConfigError: an unknown key, or a value that is no limit; with file, line and remedy.
    """
    if value is None:
        return unsaid
    section = value.mapping("budget of llm")
    section.refuse_unknown(BUDGET_KEYS)
    return Budget(
        repair_attempts=read(section, "repair_attempts", whole(1, MOST_TIMES), unsaid.repair_attempts),
        candidates=read(section, "candidates", whole(1, MOST_TIMES), unsaid.candidates),
        rounds=read(section, "rounds", whole(1, MOST_TIMES), unsaid.rounds),
        branches=read(section, "branches", whole(1, MOST_TIMES), unsaid.branches),
        tokens=read(section, "tokens", _tokens, unsaid.tokens),
        usd=read(section, "usd", lambda usd: _limit(usd, MOST_USD), unsaid.usd),
        minutes=read(section, "minutes", lambda minutes: _limit(minutes, MOST_MINUTES), unsaid.minutes),
    )


def prices(value: Value | None) -> dict[str, Price]:
    """The section `prices`, by name of the model.

    Raises:
        ConfigError: an unknown key, a price that is missing, or one that is none; with file, line and remedy.
    """
    if value is None:
        return {}
    section = value.mapping("prices of llm")
    return {name: _price(section.require(name, remedy=""), name) for name in section}


def _price(value: Value, name: str) -> Price:
    wrong = wrong_with_model(name)
    if wrong:
        value.fail(f"a name in prices of llm {wrong[0]}", remedy=wrong[1])
    section = value.mapping(f'price of model "{name}"')
    section.refuse_unknown(PRICE_KEYS)
    asked, answered = (
        within(section.require(key, remedy=f"add {key}: USD per million tokens"), 0.0, MOST_USD_PER_MILLION)
        for key in ("input", "output")
    )
    return Price(
        input_usd_per_million_tokens=asked,
        output_usd_per_million_tokens=answered,
        cached_input_usd_per_million_tokens=read(section, "cached_input", _usd_per_million, None),
    )


def _usd_per_million(value: Value) -> float | None:
    return within(value, 0.0, MOST_USD_PER_MILLION)


def without_price(settings: LlmSettings) -> tuple[str, str] | None:
    """That the budget limits money while a model has no price, and the remedy; None where all is well."""
    if settings.budget.usd is None or not settings.unpriced:
        return None
    name = settings.unpriced[0]
    return (
        f'the budget is {settings.budget.usd:g} USD, and model "{name}" has no price',
        f'add llm.prices: {{"{name}": {{input: …, output: …}}}}, in USD per million tokens, or drop budget.usd',
    )
