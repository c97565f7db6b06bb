"""What regeneration needs from outside: keys of model providers and of GitHub. Values are never read out."""

from __future__ import annotations

import os

from pytest_cgins.config.provider_presets import PRESETS
from pytest_cgins.doctor import tools
from pytest_cgins.doctor.findings import Finding

REGENERATION = "Regeneration"

VARIABLES: dict[str, tuple[tuple[str, ...], str]] = {
    **{
        name: ((preset.api_key_env,), f"the provider {name}")
        for name, preset in PRESETS.items()
        if preset.api_key_env
    },
    "GitHub": (("GITHUB_TOKEN", "GH_TOKEN"), "opening pull requests"),
}
"""Names of services, each with the variables of which one is enough, and what is disabled without them."""


def variables() -> tuple[Finding, ...]:
    """Whether each is set: the name of the variable is told, never its value."""
    return tuple(_variable(shown, names, disables) for shown, (names, disables) in VARIABLES.items())


def _variable(shown: str, names: tuple[str, ...], disables: str) -> Finding:
    there = next((name for name in names if os.environ.get(name)), "")
    return Finding(
        group=REGENERATION,
        name=shown,
        state="ok" if there else "missing",
        detail=f"{there} is set" if there else f"{' or '.join(names)} is not set",
        disables=disables,
        remedy=f"export {names[0]}=…",
    )


def git() -> Finding:
    """The git command."""
    disables = "comparing with a base revision, and pull requests"
    return tools.program(REGENERATION, "git", disables, "apt install git")
