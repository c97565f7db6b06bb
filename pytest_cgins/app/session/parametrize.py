"""Which cases a user's test gets: those of the nearest `cgins.yaml` that its marker leaves."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.app.session.gate import Gate
from pytest_cgins.config import KernelEntry
from pytest_cgins.core.case import Case
from pytest_cgins.core.errors import CginsError, ConfigError
from pytest_cgins.core.text import nearest, upwards

SELECTORS = ("kernel", "op", "implementation")
"""Arguments of the marker `cgins`, each the name of a field of `Case`."""


def parametrize(metafunc: pytest.Metafunc, gate: Gate) -> None:
    """Give a test one parameter set a case; whatever is wrong is a collection error."""
    try:
        file = nearest_config(metafunc.definition.path, gate.config.rootpath)
        wanted = selection(metafunc.definition)
        check_selection(gate.evaluator(file).config.kernels, wanted)
        cases = chosen(gate.cases(file), wanted)
    except CginsError as error:
        raise pytest.Collector.CollectError(f"{metafunc.definition.nodeid}: {error}") from error
    sets = [pytest.param(case, id=case.name) for case in cases]
    if not sets:
        device = gate.config.getoption("--cgins-device")
        asked = "".join(f", {name} {value!r}" for name, value in wanted.items())
        skip = pytest.mark.skip(reason=f"no case for --cgins-device={device}{asked}")
        sets = [pytest.param(None, id="none", marks=skip)]
    metafunc.parametrize("cgins_case", sets, indirect=True)


def nearest_config(test: Path, root: Path) -> Path:
    """The `cgins.yaml` beside a test file, or in the nearest folder above it, up to `root`.

    Raises:
        ConfigError: there is none.
    """
    found = upwards(test.parent)
    if found is not None and (found.parent == root or root in found.parents):
        return found
    raise ConfigError(
        f"no cgins.yaml beside {test}, nor in a folder above it up to {root}",
        remedy="put one there, or run pytest with --rootdir set to the folder that has it",
    )


def selection(item: pytest.Item) -> dict[str, str]:
    """What the marker `cgins` of a test asks for, the marker nearest to the test first.

    Raises:
        ConfigError: the marker has positional or unknown arguments.
    """
    wanted: dict[str, str] = {}
    for marker in item.iter_markers("cgins"):
        if marker.args:
            raise ConfigError(
                f"the marker cgins takes no positional argument, but was given {marker.args[0]!r}",
                remedy=f"name it: @pytest.mark.cgins(kernel={marker.args[0]!r})",
            )
        for name, value in marker.kwargs.items():
            if name not in SELECTORS:
                raise ConfigError(
                    f"the marker cgins has no argument {name!r}",
                    remedy=nearest(name, SELECTORS) or f"it has {', '.join(SELECTORS)}",
                )
            wanted.setdefault(name, _text(name, value))
    return wanted


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(
            f"the marker's {name} is {value!r}, of type {type(value).__name__}",
            remedy=f"give a string: @pytest.mark.cgins({name}='…')",
        )
    return value


def check_selection(kernels: Iterable[KernelEntry], wanted: dict[str, str]) -> None:
    """Refuse what no implementation in the file fits, of whatever device: that is a misspelling.

    Raises:
        ConfigError: no implementation has all the wanted values.
    """
    left = [
        {"kernel": kernel.name, "op": kernel.op, "implementation": implementation.name}
        for kernel in kernels
        for implementation in kernel.implementations
    ]
    before = ""
    for name in SELECTORS:
        if name not in wanted:
            continue
        value = wanted[name]
        known = sorted({fields[name] for fields in left})
        if value not in known:
            raise ConfigError(
                f"no case{before} has the {name} {value!r}",
                remedy=nearest(value, known) or f"there are {', '.join(known)}",
            )
        left = [fields for fields in left if fields[name] == value]
        before += f" of {name} {value!r}"


def chosen(cases: Iterable[Case], wanted: dict[str, str]) -> list[Case]:
    """The cases whose fields have the wanted values."""
    return [case for case in cases if all(getattr(case, name) == value for name, value in wanted.items())]
