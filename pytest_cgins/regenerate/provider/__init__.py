"""Providers, which answer requests: servers, recorded conversations, or people and agents through files.

The presets, which are servers known by name, are in `config.provider_presets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_cgins.config.provider_presets import PRESETS, Preset
from pytest_cgins.regenerate.provider.base import Limits
from pytest_cgins.regenerate.provider.openai_compatible import OpenAICompatible

if TYPE_CHECKING:
    from pytest_cgins.config.llm import LlmSettings
    from pytest_cgins.regenerate.provider.base import Provider


def of_settings(settings: LlmSettings, *, run: str = "", command: str = "") -> Provider:
    """The provider that the section `llm` of cgins.yaml names; nothing is asked before the first request.

    Args:
        settings: the section.
        run: name of the run, which prompts of `exchange` tell.
        command: what they tell instead where there is no run.
    """
    if settings.path is None:
        preset = PRESETS.get(settings.provider, Preset(""))
        return OpenAICompatible(
            base_url=settings.base_url or preset.url,
            api_key_env=settings.api_key_env or preset.api_key_env,
            prices=settings.prices,
            stream=settings.stream,
            limits=Limits.within(settings.timeout_s),
        )
    from pytest_cgins.regenerate.provider.exchange import Exchange
    from pytest_cgins.regenerate.provider.replay import Replay

    if settings.provider == "replay":
        return Replay(settings.path)
    return Exchange(settings.path, run, command=command)
