"""Names and defaults of pytest's options that others need too. Imports nothing of ours: the plugin imports it at every start."""

from __future__ import annotations

from typing import Literal, get_args

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
