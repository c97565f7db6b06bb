"""Servers of models that are known by name: a new one is an entry of `PRESETS`, and a name in `core.options.Provider`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_cgins.core.options import PROVIDERS, Provider

SERVERS = tuple(provider for provider in PROVIDERS if provider not in ("replay", "exchange"))
"""Providers that are asked over HTTP; the others read files."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A server that speaks OpenAI's protocol."""

    url: str
    """Where it is."""
    api_key_env: str = ""
    """The variable that holds its key where cgins.yaml names none; "" for a server without keys."""


PRESETS: Mapping[Provider, Preset] = {
    "openai": Preset("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "gemini": Preset("https://generativelanguage.googleapis.com/v1beta/openai/", "GOOGLE_API_KEY"),
    "ollama": Preset("http://localhost:11434/v1"),
}
