"""Check the action's inputs and settle paths, before anything is installed. Standard library only.

Outputs: `python`, `folder`, `report` and `cache-dir`, all absolute; `allow-weaker`, by the input or by a person's label, which
is read before any code of the repository runs; `store`, and `store-use`, the options of the gate that get it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workflow import InputError, error, set_output

LEAST_PYTHON = (3, 10)
CHOICES = {
    "INSTALL": ("pip", "none"),
    "DEVICE": ("auto", "cpu", "cuda"),
    "STRICT": ("true", "false"),
    "TIMING": ("true", "false"),
    "COMPILE_ONLY": ("true", "false"),
    "ALLOW_EMPTY": ("true", "false"),
    "ALLOW_WEAKER": ("true", "false"),
    "CACHE": ("true", "false"),
    "SUMMARY": ("true", "false"),
    "ANNOTATIONS": ("true", "false"),
}
PATTERNS = {
    "ARCHS": (r"(sm_[0-9]{2,3}[af]?(, ?sm_[0-9]{2,3}[af]?)*)?", "a list such as sm_80,sm_90a"),
    "BASELINE": (r"[A-Za-z0-9._/@{}^~-]{0,200}", "a commit, a branch or a tag"),
    "STORE": (r"[^\r\n]{0,500}", "a folder or an address"),
    "SEED": (r"[0-9]{0,19}", "a whole number"),
    "TORCH_INDEX": (r"((https?|file)://\S{1,1000})?", "the address of a package index"),
    "EXTRAS": (r"([A-Za-z0-9_-]+(,[A-Za-z0-9_-]+)*)?", "names with commas between them, such as nvcc,sass"),
    "PACKS_KEY": (r"[^,]{0,512}", "up to 512 characters without a comma"),
    "RETENTION_DAYS": (r"[0-9]{1,3}", "a number of days"),
    "WEAKER_LABEL": (r"[^,\r\n]{0,50}", "up to 50 characters without a comma"),
    "CACHE_KEY_SUFFIX": (r"[A-Za-z0-9._-]{0,100}", "up to 100 letters, digits, dots, dashes and underscores"),
}


def prepare(environment: Mapping[str, str]) -> dict[str, str]:
    """The step's outputs.

    Raises:
        InputError: an input is wrong.
    """
    if sys.version_info < LEAST_PYTHON:
        raise InputError(f"input python: {sys.executable} is Python {sys.version.split()[0]}; it takes 3.10")
    for name, choices in CHOICES.items():
        if (value := environment[f"INPUT_{name}"]) not in choices:
            raise InputError(f"input {_spelled(name)}: {value!r} is not one of {', '.join(choices)}")
    for name, (pattern, meaning) in PATTERNS.items():
        if not re.fullmatch(pattern, value := environment[f"INPUT_{name}"]):
            raise InputError(f"input {_spelled(name)}: {value!r} is not {meaning}")
    try:
        shlex.split(environment["INPUT_PYTEST_ARGS"])
    except ValueError as wrong:
        raise InputError(f"input pytest-args: {wrong}; quote it as in a shell") from None
    if environment["INPUT_ARCHS"] and environment["INPUT_COMPILE_ONLY"] != "true":
        raise InputError("input archs: goes with compile-only true")
    if bool(environment["INPUT_PACKS"].strip()) != bool(environment["INPUT_PACKS_KEY"]):
        raise InputError("input packs-key: goes with packs, and packs with packs-key")
    temporary = Path(environment["RUNNER_TEMP"])
    folder = _folder(environment["INPUT_WORKING_DIRECTORY"])
    _check_installation(environment, folder)
    return {
        "python": _interpreter(environment["INPUT_PYTHON"]),
        "folder": str(folder),
        "report": str(_report(environment["INPUT_JSON"], folder, temporary)),
        "cache-dir": str(temporary / "cgins-cache"),
        "store": str(temporary / "cgins-verdicts")
        if environment["INPUT_STORE"] == "cache"
        else environment["INPUT_STORE"],
        "store-use": _store_use(environment) if environment["INPUT_STORE"] else "",
        "allow-weaker": "true"
        if environment["INPUT_ALLOW_WEAKER"] == "true" or _is_labelled(environment)
        else "false",
    }


def _store_use(environment: Mapping[str, str]) -> str:
    """A pull request takes verdicts, a push to the default branch takes and keeps them, and a schedule keeps new ones."""
    if environment.get("GITHUB_EVENT_NAME") == "schedule":
        return "--cgins-store-write"
    try:
        default = _event(environment)["repository"]["default_branch"]
    except (OSError, ValueError, LookupError, TypeError):
        return "--cgins-store"
    pushed = environment.get("GITHUB_EVENT_NAME") == "push"
    keeps = pushed and environment.get("GITHUB_REF") == f"refs/heads/{default}"
    return "--cgins-store --cgins-store-write" if keeps else "--cgins-store"


def _event(environment: Mapping[str, str]) -> Any:
    return json.loads(Path(environment["GITHUB_EVENT_PATH"]).read_bytes())


def _is_labelled(environment: Mapping[str, str]) -> bool:
    """Whether the pull request had the label when the run was started: who may only open one cannot give it any."""
    try:
        labels = {label["name"] for label in _event(environment)["pull_request"]["labels"]}
    except (OSError, ValueError, LookupError, TypeError):
        return False
    return environment["INPUT_WEAKER_LABEL"] in labels


def _interpreter(text: str) -> str:
    # As it was given, not `sys.executable`: a wrapper may set what the interpreter needs.
    found = shutil.which(text)
    if found is None:
        raise InputError(f"input python: {text!r} is not on PATH; give a path")
    return str(Path(found).absolute())


def _folder(text: str) -> Path:
    folder = Path(text or ".").absolute()
    if not folder.is_dir():
        raise InputError(f"input working-directory: there is no folder {folder}; is the checkout missing?")
    return folder


def _report(text: str, folder: Path, temporary: Path) -> Path:
    report = folder / text if text else temporary / "cgins" / "report.json"
    if report.is_dir():
        raise InputError(f"input json: {report} is a folder; name a file")
    return report


def _check_installation(environment: Mapping[str, str], folder: Path) -> None:
    for name in ("REQUIREMENTS", "CONSTRAINTS"):
        if (value := environment[f"INPUT_{name}"]) and not (folder / value).is_file():
            raise InputError(f"input {_spelled(name)}: there is no file {folder / value}")
    if environment["INPUT_EXTRAS"] and environment["INPUT_PACKAGE"]:
        raise InputError("input extras: goes without package, which can name its own")
    names = ("PACKAGE", "EXTRAS", "TORCH_INDEX", "REQUIREMENTS", "CONSTRAINTS")
    given = [name for name in names if environment[f"INPUT_{name}"]]
    if environment["INPUT_INSTALL"] == "none" and given:
        raise InputError(f"input {_spelled(given[0])}: goes with install pip, not with install none")
    if environment["INPUT_PACKAGE"].startswith("-"):
        raise InputError("input package: starts with a dash; pip's options belong into requirements")


def _spelled(name: str) -> str:
    return name.lower().replace("_", "-")


def main() -> int:
    """Write the outputs; 2 if an input is wrong."""
    try:
        outputs = prepare(os.environ)
    except InputError as wrong:
        error(str(wrong))
        return 2
    for name, value in outputs.items():
        set_output(name, value)
    return 0


if __name__ == "__main__":
    sys.exit(main())
