"""Servers of models that are known by name: a new one is an entry of `PRESETS`, and its name in `Provider`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Provider = Literal["openai", "gemini", "ollama", "compatible", "replay", "exchange"]
PROVIDERS: tuple[Provider, ...] = get_args(Provider)
"""Who answers: those of `PRESETS`; any server that speaks OpenAI's protocol; a recording; a person or an agent."""
SERVERS = tuple(provider for provider in PROVIDERS if provider not in ("replay", "exchange"))
"""Those that are asked over HTTP; the others read files."""


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
