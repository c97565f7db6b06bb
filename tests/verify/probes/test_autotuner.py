"""Choices of autotuners, told apart and given to others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from pytest_cgins.core.measurement import TunedConfig
from pytest_cgins.verify.probes import autotuner
from pytest_cgins.verify.probes.autotuner import Autotuners

triton = pytest.importorskip("triton")
from triton.runtime.autotuner import Autotuner, OutOfResources  # noqa: E402 - where there is one

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


@pytest.mark.exam
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


class Kernel:
    """Stands for a compiled function: notes which config it is launched with; 64 does not run on this device."""

    def __init__(self) -> None:
        self.blocks: list[int] = []

    def run(self, *_arguments: object, BLOCK: int, **_options: object) -> None:  # noqa: N803 - as Triton calls it
        """A launch."""
        if BLOCK == 64:
            raise OutOfResources(1, 0, "shared memory")
        self.blocks.append(BLOCK)


def test_inputs_of_probes_are_not_tuned_for(tuners: dict[str, Any]) -> None:
    """Each config is called once, and of those that run the first is taken; what was chosen before is kept, and this is not."""
    rows = tuners["rows_18a"]
    rows.fn, rows.cache_results, (small, large) = Kernel(), True, rows.configs
    rows.configs = [small, large, triton.Config({"BLOCK": 256})]
    rows.cache = {(8,): rows.configs[2]}
    with autotuner.first_chosen():
        rows.run(None, 8)
        assert rows.fn.blocks == [256]
        for _ in range(2):
            rows.run(None, 9)
    assert rows.fn.blocks == [256, 128, 256, 128, 128]
    assert rows.cache == {(8,): rows.configs[2]}
    choices = [
        TunedConfig(kernel=name, key="(8,)", config="BLOCK: 256", configs=3)
        for name in ("scale", "scale", "add")
    ]
    assert autotuner.notes(choices) == (
        "on inputs of probes scale, add ran with the first of its autotuner's configs",
    )
    assert autotuner.notes([]) == ()


def test_autotuners_of_libraries_choose_as_ever(tuners: dict[str, Any]) -> None:
    """They may keep what they choose for other processes, which times that nobody took would mislead."""

    class Keeping(Autotuner):
        def run(self, *arguments: object, **options: object) -> object:
            """As those of some libraries."""
            return super().run(*arguments, **options)

    rows, timed = tuners["rows_18a"], []

    def bench(call: Callable[[], object], quantiles: object) -> list[float]:
        call()
        timed.append(quantiles)
        return [1.0]

    kept = Keeping.__new__(Keeping)
    vars(kept).update({**vars(rows), "fn": Kernel(), "_do_bench": bench, "configs": rows.configs[1:] * 2})
    vars(kept).pop("do_bench", None)
    assert autotuner.has_others()
    with autotuner.first_chosen():
        kept.run(None, 8)
    assert len(timed) == 2
