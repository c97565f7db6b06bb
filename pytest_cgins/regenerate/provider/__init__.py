"""Who answers requests: servers, recorded conversations, or people and agents through files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins.core.errors import ConfigError

if TYPE_CHECKING:
    from pytest_cgins.config.llm import LlmSettings, Price
    from pytest_cgins.regenerate.provider.base import Limits, Provider


def of_settings(settings: LlmSettings, *, run: str = "", command: str = "") -> Provider:
    """The provider that the section `llm` of cgins.yaml names, for a run of this name, or a command that is no run."""
    from pytest_cgins.regenerate.provider.base import Limits

    # Time for one more answer if the first is lost, and for the pauses that providers ask for.
    deadline_s = 2 * settings.timeout_s + 300.0
    return make(
        settings.provider,
        base_url=settings.base_url,
        api_key_env=settings.api_key_env,
        path=settings.path,
        run=run,
        command=command,
        prices=settings.prices,
        stream=settings.stream,
        limits=Limits(idle_s=settings.timeout_s, try_s=settings.timeout_s, deadline_s=deadline_s),
    )


def make(
    name: str,
    *,
    base_url: str = "",
    api_key_env: str = "",
    path: Path | None = None,
    run: str = "",
    command: str = "",
    prices: Mapping[str, Price] | None = None,
    stream: bool = True,
    limits: Limits | None = None,
    strict: bool = False,
) -> Provider:
    """Make a provider. Nothing is asked and no process is started before the first request.

    Args:
        name: `openai`, `gemini`, `ollama`, `compatible`, `replay` or `exchange`.
        base_url: of a server; "" for the provider's own.
        api_key_env: variable that holds its key; "" for the provider's own, or none.
        path: folder of `replay` and `exchange`.
        run: name of the run, which prompts of `exchange` tell.
        command: what they tell instead where there is no run.
        prices: by model.
        stream: whether answers come in pieces.
        limits: how long, and how often a server is asked.
        strict: whether `replay` refuses prompts that are not the recorded ones.

    Raises:
        ConfigError: the name is not known, or lacks its folder or address.
    """
    from pytest_cgins.config.provider_presets import PRESETS, PROVIDERS, Preset
    from pytest_cgins.core.text import nearest
    from pytest_cgins.regenerate.provider import openai_compatible

    if name not in PROVIDERS:
        raise ConfigError(
            f'llm.provider is "{name}"',
            remedy=nearest(name, PROVIDERS) or f"take one of: {', '.join(PROVIDERS)}",
        )
    if name in {"replay", "exchange"}:
        return _of_files(name, path, run, command=command, strict=strict)
    preset = next((preset for known, preset in PRESETS.items() if known == name), Preset(""))
    if not (base_url or preset.url):
        raise ConfigError(f'llm.provider is "{name}" without an address', remedy="set llm.base_url")
    return openai_compatible.OpenAICompatible(
        base_url=base_url or preset.url,
        api_key_env=api_key_env or preset.api_key_env,
        prices=prices,
        stream=stream,
        limits=limits,
    )


def _of_files(name: str, path: Path | None, run: str, *, command: str, strict: bool) -> Provider:
    from pytest_cgins.regenerate.provider.exchange import Exchange
    from pytest_cgins.regenerate.provider.replay import Replay

    if path is None:
        raise ConfigError(f'llm.provider is "{name}" without a folder', remedy="set llm.path")
    return Replay(path, strict=strict) if name == "replay" else Exchange(path, run, command=command)
