"""Choices of autotuners, told apart and given to others."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from pytest_cgins.verify.probes.autotuner import Autotuners

triton = pytest.importorskip("triton")
SOURCE = """
import triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def scale(x, n, BLOCK: tl.constexpr):
    pass
"""


@pytest.fixture
def tuners(tmp_path: Any) -> Iterator[dict[str, Any]]:
    """One function's name in two modules, and one of them at the base revision as well."""
    found, names = {}, ("rows_18a", "columns_18a", "_cgins_base_18a.rows_18a")
    for name in names:
        file = tmp_path / f"{name}.py"
        file.write_text(SOURCE)
        module = ModuleType(name)
        sys.modules[name] = module
        exec(compile(SOURCE, str(file), "exec"), vars(module))
        found[name] = module.scale
    yield found
    for name in names:
        del sys.modules[name]


def test_kernels_of_one_name_in_two_modules_keep_their_choices(tuners: dict[str, Any]) -> None:
    """The choice for rows is not given to columns: they are told apart by their modules."""
    rows, columns, base = tuners.values()
    small, large = rows.configs
    rows.cache, columns.cache = {(8,): small}, {(8,): columns.configs[1]}
    base.cache = {(8,): base.configs[1]}
    chosen = {choice.kernel: choice.config for choice in Autotuners().chosen("")}
    assert chosen == {"rows_18a.scale": str(small), "columns_18a.scale": str(large)}
    (note,) = Autotuners().give(Autotuners().chosen(""), "_cgins_base_18a")
    assert note.startswith("the autotuner of rows_18a.scale chose BLOCK: 128")
    assert base.cache == {(8,): base.configs[0]}
