"""Names and defaults of pytest's options that others need too. Imports nothing of ours: the plugin imports it at every start."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

TIMEOUT_S = 60.0
"""Default of `--cgins-timeout`, in seconds."""

FIXTURES = frozenset({"cgins_case", "cgins_kernel", "cgins_benchmark", "cgins_record"})
"""Fixtures that need `--cgins`."""

BASELINE = "merge-base"
"""Default of `--cgins-baseline`."""

COMPARISONS = ("compile", "unchanged")
"""Values of `--cgins-compare`."""

HISTORY_FILE = "cgins-history.jsonl"
"""What `cgins history` reads if no other file is named."""

PROBE_LEVELS = ("full", "fast", "off")
"""Values of `--cgins-probes`; the first is the default."""

SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")
"""Tools of compute-sanitizer, in the order in which `--cgins-sanitize` runs them."""
BARE_VARIABLE = "CGINS_BARE_OUTPUTS"
"""Set where another tool watches memory: outputs get no guards and no poison, which would hide what it looks for."""

RUNS_FOLDER = ".cgins/runs"
"""Where journals of regeneration lie, below the folder of cgins.yaml."""
Policy = Literal["single-shot", "refine", "branch", "evolve", "mcts"]
"""How `--cgins-regenerate` searches for a faster kernel."""
POLICIES: tuple[Policy, ...] = get_args(Policy)

Provider = Literal["openai", "gemini", "ollama", "compatible", "replay", "exchange"]
"""Who answers regeneration: presets of `config.provider_presets`; any server with OpenAI's protocol; a recording; a person
or an agent."""
PROVIDERS: tuple[Provider, ...] = get_args(Provider)


def described(line: str, settings: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The names of an argument and its settings, by the line that the help shows: `-j/--jobs N  builds at a time`.

    Of `--level low|high  …` these words are the choices, and the first is the default if the text has `%(default)s`.
    The type is that of the default. `settings` come before what the line says.
    """
    form, _, text = line.partition("  ")
    names, _, metavar = form.partition(" ")
    words = tuple(metavar.split("|"))
    told: dict[str, Any] = {"help": text}
    if len(words) > 1:
        told |= {"choices": words, "default": words[0] if "%(default)s" in text else None}
    elif metavar:
        told["metavar"] = metavar
    types = [kind for kind in (int, float, Path) if isinstance(settings.get("default"), kind)]
    if types and "action" not in settings:
        told["type"] = types[0]
    return names, told | settings


def whole_number(least: int, most: int = 10**18) -> Callable[[str], int]:
    """Type of an argument: a whole number within limits."""
    limits = f"from {least} on" if most == 10**18 else f"from {least} to {most}"

    def number(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
            raise ArgumentTypeError(f"{text!r} is not a number {limits}")
        return int(text)

    return number


def above_zero(text: str) -> float:
    """Type of an argument: a finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not a number above 0")
    return number
