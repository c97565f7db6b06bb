"""Reading `llm` of cgins.yaml.

Whatever may be an API key by mistake is never repeated in a message.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

from pytest_cgins.config.document import Section, Value
from pytest_cgins.config.llm import (
    API_KEYS,
    EXCHANGE_FOLDER,
    PROVIDERS,
    ROLES,
    RUNS_FOLDER,
    SERVERS,
    UNPAID,
    Budget,
    LlmSettings,
    Models,
    Policy,
    Provider,
    Temperatures,
)
from pytest_cgins.config.llm_checks import (
    EXAMPLE_URL,
    VARIABLE_REMEDY,
    wrong_with_model,
    wrong_with_url,
    wrong_with_variable,
)
from pytest_cgins.config.llm_costs import budget, prices, read, whole, within, without_price
from pytest_cgins.core.options import POLICIES

LLM_KEYS = (
    "provider", "base_url", "api_key_env", "path", "model", "models", "temperature", "max_answer_tokens", "policy", "stream",
    "timeout_s", "budget", "prices", "runs",
)  # fmt: skip
SERVER_KEYS = ("base_url", "api_key_env", "stream", "timeout_s")
"""Without effect where no server is asked."""
LEAST_ANSWER_TOKENS, MOST_ANSWER_TOKENS = 256, 1_000_000
MOST_TIMEOUT_S = 86_400.0
GREATEST_TEMPERATURE = 2.0


def llm_settings(value: Value | None, root: Path) -> LlmSettings | None:
    """The section `llm`; None if the file has none.

    Args:
        value: what stands there.
        root: folder of the file, where relative paths start.

    Raises:
        ConfigError: an unknown key, a key that is missing or without effect, or a value that cannot be meant; with
            file, line and remedy.
    """
    if value is None:
        return None
    section = value.mapping("llm")
    _refuse_keys(section)
    named = section.require("provider", remedy=f"add provider: {' or '.join(PROVIDERS)}")
    provider = cast("Provider", named.choice(*PROVIDERS))
    _refuse_without_effect(section, provider)
    unsaid = LlmSettings(provider=provider, runs=root)
    settings = LlmSettings(
        provider=provider,
        base_url=_base_url(section, provider),
        api_key_env=_api_key_env(section, provider),
        path=_folder(section, provider, root),
        models=_models(section, provider),
        temperature=read(section, "temperature", _temperatures, unsaid.temperature),
        max_answer_tokens=read(
            section,
            "max_answer_tokens",
            whole(LEAST_ANSWER_TOKENS, MOST_ANSWER_TOKENS),
            unsaid.max_answer_tokens,
        ),
        policy=read(section, "policy", _policy, unsaid.policy),
        stream=read(section, "stream", Value.boolean, unsaid.stream),
        timeout_s=read(
            section, "timeout_s", lambda seconds: within(seconds, 1.0, MOST_TIMEOUT_S), unsaid.timeout_s
        ),
        budget=budget(section.get("budget"), Budget() if provider in SERVERS else UNPAID),
        prices=prices(section.get("prices")),
        runs=_path(section.get("runs"), root, RUNS_FOLDER),
    )
    _check_prices(settings, section)
    return settings


def _policy(value: Value) -> Policy:
    return cast("Policy", value.choice(*POLICIES))


def _refuse_keys(section: Section) -> None:
    for key in ("api_key", "key"):
        value = section.get(key)
        if value:
            value.fail(f'"{key}" in llm: a key is never written into this file', remedy=VARIABLE_REMEDY)
    section.refuse_unknown(LLM_KEYS)
    model, models = section.get("model"), section.get("models")
    if model and models:
        model.fail(
            "llm has both model and models",
            remedy="keep models: {generator: …}, or model, which is its short form",
        )


def _refuse_without_effect(section: Section, provider: Provider) -> None:
    """Refuse keys that would be without effect."""
    asks_server = provider in SERVERS
    for key in SERVER_KEYS if not asks_server else ("path",):
        value = section.get(key)
        if value:
            value.fail(
                f'"{key}" has no effect in llm: its provider is {provider}',
                remedy="remove it; it goes with "
                + ("replay and exchange" if asks_server else ", ".join(SERVERS)),
            )


def _base_url(section: Section, provider: Provider) -> str:
    value = section.get("base_url")
    if value is None:
        if provider == "compatible":
            section.fail(
                "llm has no base_url, which provider compatible needs", remedy=f"add base_url: {EXAMPLE_URL}"
            )
        return ""
    text = value.text().strip()
    wrong = wrong_with_url(text)
    if wrong:
        value.fail(f'"base_url" in llm {wrong[0]}', remedy=wrong[1])
    return text


def _api_key_env(section: Section, provider: Provider) -> str:
    value = section.get("api_key_env")
    if value is None:
        return API_KEYS.get(provider, "")
    # Not by Value.text(), whose message repeats the value.
    text = str(value.node.value) if value.node.tag.endswith(":str") else ""
    wrong = wrong_with_variable(text)
    if wrong:
        value.fail(f'"api_key_env" in llm {wrong[0]}', remedy=wrong[1])
    return text


def _folder(section: Section, provider: Provider, root: Path) -> Path | None:
    value = section.get("path")
    if value is None and provider == "replay":
        section.fail(
            "llm has no path, which provider replay needs",
            remedy="add path: FOLDER, with the recorded conversations",
        )
    return _path(value, root, EXCHANGE_FOLDER) if provider not in SERVERS else None


def _path(value: Value | None, root: Path, default: str) -> Path:
    """A folder that need not be there: a gate without regeneration does not touch it."""
    text = value.text() if value else default
    if value and not text.isprintable():
        value.fail(f'"{value.key}" in llm is no name of a folder', remedy=f"write e.g. {default}")
    return Path(os.path.normpath(root / text))


def _models(section: Section, provider: Provider) -> Models:
    model, models = section.get("model"), section.get("models")
    if model:
        return Models(generator=(_model(model),), helper=(_model(model),))
    if models is None:
        if provider in SERVERS:
            section.fail(f"llm has no model, which provider {provider} needs", remedy="add model: NAME")
        return Models()
    roles = models.mapping("models of llm")
    roles.refuse_unknown(ROLES)
    generator = _names(roles.require("generator", remedy="add generator: NAME"))
    return Models(
        generator=generator,
        helper=read(roles, "helper", _names, generator[:1]),
        verifier=read(roles, "verifier", _names, ()),
    )


def _names(value: Value) -> tuple[str, ...]:
    """A name, or a list of at least one."""
    if not value.node.tag.endswith(":seq"):
        return (_model(value),)
    names: list[str] = []
    for item in value.items():
        name = _model(item)
        if name in names:
            item.fail(
                f'"{value.key}" in models of llm has {name} twice',
                remedy="name it once; budget.branches asks it often",
            )
        names.append(name)
    if not names:
        value.fail(f'"{value.key}" in models of llm is empty', remedy="name at least one model")
    return tuple(names)


def _model(value: Value) -> str:
    name = value.text()
    wrong = wrong_with_model(name)
    if wrong:
        value.fail(f'"{value.key}" in {value.section.title} {wrong[0]}', remedy=wrong[1])
    return name


def _temperatures(value: Value) -> Temperatures:
    if not value.node.tag.endswith(":map"):
        all_of_them = _temperature(value)
        return Temperatures(generator=all_of_them, helper=all_of_them, verifier=all_of_them)
    section = value.mapping("temperature of llm")
    section.refuse_unknown(ROLES)
    return Temperatures(**{role: read(section, role, _temperature, None) for role in ROLES})


def _temperature(value: Value) -> float | None:
    return within(value, 0.0, GREATEST_TEMPERATURE)


def _check_prices(settings: LlmSettings, section: Section) -> None:
    wrong = without_price(settings)
    limits = section.get("budget")
    if wrong and limits:
        limits.mapping("budget of llm").require("usd", remedy="").fail(wrong[0], remedy=wrong[1])
