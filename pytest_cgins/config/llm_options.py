"""`--cgins-llm`, `--cgins-model` and `--cgins-budget`, which come before the section `llm` of cgins.yaml."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from pytest_cgins.config.document import read
from pytest_cgins.config.llm import (
    EXAMPLE_URL,
    Budget,
    LlmSettings,
    Models,
    provider_defaults,
    without_price,
    wrong_with_model,
    wrong_with_url,
)
from pytest_cgins.config.provider_presets import SERVERS
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.options import PROVIDERS, Provider
from pytest_cgins.core.text import nearest

LLM_OPTION = "--cgins-llm"
MODEL_OPTION = "--cgins-model"
BUDGET_OPTION = "--cgins-budget"


def overridden(
    settings: LlmSettings | None, *, llm: str = "", model: str = "", budget: str = "", root: Path, here: Path
) -> LlmSettings | None:
    """The settings after the options of the command line.

    Another provider than the file's gets none of its address, key, folder and models; budget, prices and the like
    stay. A model from the command line takes every role that is filled.

    Args:
        settings: of the file; None if it has no section.
        llm: `PROVIDER`, `PROVIDER:URL` or `PROVIDER:FOLDER`; "" where the option is not given.
        model: a model's name; "" where the option is not given.
        budget: `KEY=N,KEY=N`, with the keys of `llm.budget`; "" where the option is not given.
        root: folder of cgins.yaml, for the default folders.
        here: folder in which the command was given: where its relative folders start.

    Raises:
        ConfigError: an option is wrong, or contradicts the file.
    """
    if llm:
        settings = _with_provider(settings, llm, root, here)
    if model:
        settings = _with_model(settings, model)
    if settings is not None and budget:
        settings = replace(settings, budget=replace(settings.budget, **_budget(budget)))
    if settings is None or not (llm or model or budget):
        return settings
    if settings.asks_server and not all(settings.models.generator):
        _refuse(
            f"{LLM_OPTION}={settings.provider}", "without the name of a model", f"add {MODEL_OPTION}=NAME"
        )
    wrong = without_price(settings)
    if wrong:
        option = MODEL_OPTION if model else LLM_OPTION if llm else BUDGET_OPTION
        raise ConfigError(f"{option}: {wrong[0]}", remedy=wrong[1])
    return settings


def _budget(text: str) -> dict[str, Any]:
    return read(
        Path(BUDGET_OPTION), content=f"{{{text.replace('=', ': ')}}}".encode(), title=BUDGET_OPTION
    ).fields(Budget)


def _with_provider(settings: LlmSettings | None, llm: str, root: Path, here: Path) -> LlmSettings:
    word, colon, rest = llm.partition(":")
    if word not in PROVIDERS:
        # A key in place of a provider is not repeated.
        remedy = nearest(word, PROVIDERS) or f"write {', '.join(PROVIDERS[:-1])} or {PROVIDERS[-1]}"
        _refuse(LLM_OPTION, "does not begin with a provider", remedy)
    provider = word
    option = f"{LLM_OPTION}={provider}"
    if colon and not rest:
        _refuse(f"{option}:", "ends in a colon", "write what follows it, or leave it out")
    if settings is None or settings.provider != provider:
        settings = _changed(settings, provider, root)
    if provider in SERVERS:
        return _at_server(settings, option, rest)
    if "://" in rest or not rest.isprintable():
        _refuse(option, "with something that is not a folder", f"write {option}:FOLDER")
    if rest:
        return replace(settings, path=Path(os.path.normpath(here / rest)))
    if settings.path is None:
        _refuse(option, "without a folder", f"write {option}:FOLDER, with the recorded conversations")
    return settings


def _changed(settings: LlmSettings | None, provider: Provider, root: Path) -> LlmSettings:
    """Another provider, without what only the former provider knows."""
    defaults = provider_defaults(provider, root)
    if settings is None:
        return defaults
    return replace(
        settings,
        provider=provider,
        base_url="",
        api_key_env=defaults.api_key_env,
        path=defaults.path,
        # Recordings know the models that were asked.
        models=settings.models if provider == "replay" else Models(),
    )


def _at_server(settings: LlmSettings, option: str, url: str) -> LlmSettings:
    if url:
        wrong = wrong_with_url(url)
        if wrong:
            _refuse(option, f"with an address that {wrong[0]}", wrong[1])
        return replace(settings, base_url=url)
    if settings.provider == "compatible" and not settings.base_url:
        _refuse(option, "without an address", f"write {option}:{EXAMPLE_URL}")
    return settings


def _with_model(settings: LlmSettings | None, model: str) -> LlmSettings:
    wrong = wrong_with_model(model)
    if wrong:
        _refuse(MODEL_OPTION, f"has a value that {wrong[0]}", wrong[1])
    if settings is None:
        _refuse(
            MODEL_OPTION,
            "names a model, and nothing says whose it is",
            f"add {LLM_OPTION}=PROVIDER, or the section llm to cgins.yaml",
        )
    verifier = (model,) if settings.models.verifier else ()
    return replace(settings, models=Models(generator=(model,), helper=(model,), verifier=verifier))


def _refuse(option: str, problem: str, remedy: str) -> NoReturn:
    raise ConfigError(f"{option} {problem}", remedy=remedy)
