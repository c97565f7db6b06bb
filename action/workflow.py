"""What the action's scripts say to the runner: outputs and errors. Standard library only."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


class InputError(Exception):
    """An input of the action is wrong; the text names it, its value and the remedy."""


def set_output(name: str, value: str) -> None:
    """Set an output of this step; the delimiter is random, so that no value can end it early."""
    delimiter = f"cgins-{secrets.token_hex(16)}"
    with Path(os.environ["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as file:
        file.write(f"{name}<<{delimiter}\n{value}\n{delimiter}\n")


def error(text: str) -> None:
    """An annotation; line breaks and what else the runner reads is escaped as its protocol says."""
    _annotate("error", text)


def warning(text: str) -> None:
    """An annotation of what fails nothing."""
    _annotate("warning", text)


def _annotate(level: str, text: str) -> None:
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    print(f"::{level} title=pytest-cgins::{escaped}", flush=True)
