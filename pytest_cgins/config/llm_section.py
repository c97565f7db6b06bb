"""Reading `llm` of cgins.yaml.

Whatever may be an API key by mistake is never repeated in a message.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pytest_cgins.config.document import Readers, Section, Value, whole, within
from pytest_cgins.config.llm import (
    EXAMPLE_URL,
    EXCHANGE_FOLDER,
    ROLES,
    RUNS_FOLDER,
    VARIABLE_REMEDY,
    LlmSettings,
    Models,
    Price,
    Temperatures,
    provider_defaults,
    without_price,
    wrong_with_model,
    wrong_with_url,
    wrong_with_variable,
)
from pytest_cgins.config.provider_presets import PROVIDERS, SERVERS, Provider
from pytest_cgins.core.options import POLICIES

SERVER_KEYS = ("base_url", "api_key_env", "stream", "timeout_s")
"""Without effect where no server is asked."""
_temperature = within(0.0, 2.0)


def llm_settings(value: Value) -> LlmSettings:
    """The section `llm`.

    Raises:
        ConfigError: an unknown key, a key that is missing or without effect, or a value that cannot be meant; with
            file, line and remedy.
    """
    section = value.mapping("llm")
    _refuse_keys(section)
    provider = section.require("provider", remedy=f"add provider: {' or '.join(PROVIDERS)}").choice(
        *PROVIDERS
    )
    _refuse_without_effect(section, provider)
    fields = section.read(_READERS, others=True)
    _require(section, provider)
    if "model" in fields:
        fields["models"] = fields.pop("model")
    defaults = provider_defaults(provider, section.file.parent)
    fields["budget"] = replace(defaults.budget, **fields.get("budget", {}))
    settings = replace(defaults, **fields)
    wrong = without_price(settings)
    if wrong:
        section["budget"].mapping()["usd"].fail(wrong[0], remedy=wrong[1])
    return settings


def _refuse_keys(section: Section) -> None:
    for key in ("api_key", "key"):
        if key in section:
            section[key].fail(
                f'"{key}" in llm: a key is never written into this file', remedy=VARIABLE_REMEDY
            )
    section.refuse_unknown(LLM_KEYS)
    if "model" in section and "models" in section:
        section["model"].fail(
            "llm has both model and models",
            remedy="keep models: {generator: …}, or model, which is its short form",
        )


def _refuse_without_effect(section: Section, provider: Provider) -> None:
    asks_server = provider in SERVERS
    for key in ("path",) if asks_server else SERVER_KEYS:
        if key in section:
            section[key].fail(
                f'"{key}" has no effect in llm: its provider is {provider}',
                remedy="remove it; it goes with "
                + ("replay and exchange" if asks_server else ", ".join(SERVERS)),
            )


def _require(section: Section, provider: Provider) -> None:
    """Refuse a section without what its provider cannot do without."""
    needs = {
        "base_url": (provider == "compatible", f"add base_url: {EXAMPLE_URL}"),
        "path": (provider == "replay", "add path: FOLDER, with the recorded conversations"),
        "model": (provider in SERVERS and "models" not in section, "add model: NAME"),
    }
    for key, (needed, remedy) in needs.items():
        if needed and key not in section:
            section.fail(f"llm has no {key}, which provider {provider} needs", remedy=remedy)


def _base_url(value: Value) -> str:
    url = value.text().strip()
    value.check(wrong_with_url(url))
    return url


def _api_key_env(value: Value) -> str:
    # Not by Value.text(), whose message repeats the value.
    name = str(value.node.value) if value.is_a("str") else ""
    value.check(wrong_with_variable(name))
    return name


def _folder(value: Value) -> Path:
    """A folder that need not be there: a gate without regeneration does not touch it."""
    text = value.text()
    if not text.isprintable():
        example = RUNS_FOLDER if value.key == "runs" else EXCHANGE_FOLDER
        value.fail(f"{value.label} is not a folder name", remedy=f"write e.g. {example}")
    return Path(os.path.normpath(value.section.file.parent / text))


def _models(value: Value) -> Models:
    roles = value.mapping()
    names = roles.read(dict.fromkeys(ROLES, _model_names))
    roles.require("generator", remedy="add generator: NAME")
    return Models(**{"helper": names["generator"][:1], **names})


def _single_model(value: Value) -> Models:
    name = (_model(value),)
    return Models(generator=name, helper=name)


def _model_names(value: Value) -> tuple[str, ...]:
    """A name, or a list of at least one."""
    if not value.is_a("seq"):
        return (_model(value),)
    names: list[str] = []
    for item in value.items():
        name = _model(item)
        if name in names:
            item.fail(f"{value.label} has {name} twice", remedy="name it once; budget.branches asks it often")
        names.append(name)
    if not names:
        value.fail(f"{value.label} is empty", remedy="name at least one model")
    return tuple(names)


def _model(value: Value) -> str:
    name = value.text()
    value.check(wrong_with_model(name))
    return name


def _temperatures(value: Value) -> Temperatures:
    if value.is_a("map"):
        return Temperatures(**value.mapping().read(dict.fromkeys(ROLES, _temperature)))
    return Temperatures(**dict.fromkeys(ROLES, _temperature(value)))


def _or_none(read: Callable[[Value], float]) -> Callable[[Value], float | None]:
    """A reader that takes `none` for no limit."""
    return lambda value: None if value.scalar().strip() == "none" else read(value)


def _above_0(most: float) -> Callable[[Value], float]:
    def number(value: Value) -> float:
        amount = value.amount()
        if not 0 < amount <= most:
            value.refuse(
                f"not above 0 and up to {most:g}", remedy="write a number above 0, or none for no limit"
            )
        return amount

    return number


def _prices(value: Value) -> dict[str, Price]:
    section = value.mapping()
    return {name: _price(section[name]) for name in section}


def _price(value: Value) -> Price:
    value.check(wrong_with_model(value.key), "a name in prices of llm")
    section = value.mapping(f'price of model "{value.key}"')
    usd = section.read(dict.fromkeys(("input", "cached_input", "output"), within(0.0, 1e6)))
    for key in ("input", "output"):
        section.require(key, remedy=f"add {key}: USD per million tokens")
    return Price(**{f"{key}_usd_per_million_tokens": price for key, price in usd.items()})


_BUDGET_READERS: Readers = {
    **dict.fromkeys(("repair_attempts", "candidates", "rounds", "branches"), whole(1, 1000)),
    "tokens": _or_none(whole(1, 10**12)),
    "usd": _or_none(_above_0(1e6)),
    "minutes": _or_none(_above_0(1e6)),
}
_READERS: Readers = {
    "base_url": _base_url,
    "api_key_env": _api_key_env,
    "path": _folder,
    "model": _single_model,
    "models": _models,
    "temperature": _temperatures,
    "max_answer_tokens": whole(256, 1_000_000),
    "policy": lambda value: value.choice(*POLICIES),
    "stream": Value.boolean,
    "timeout_s": within(1.0, 86_400.0),
    "budget": lambda value: value.mapping().read(_BUDGET_READERS),
    "prices": _prices,
    "runs": _folder,
}
"""By key, which is also the field of `LlmSettings`, `model` aside."""
LLM_KEYS = ("provider", *_READERS)
