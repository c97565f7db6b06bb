"""`specialize`: what it means, how mistakes in it are told, and what recorded calls say of its sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.config import load, specialize
from pytest_cgins.core.case import Specialized
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.trace import Argument, OpCall, TensorMeta, Value


def read(folder: Path, implementation: str) -> Specialized | None:
    for name in ("a.cpp", "b.cu", "c.py"):
        (folder / name).touch()
    file = folder / "cgins.yaml"
    file.write_text(f"version: 1\nkernels:\n  it:\n    op: torch.mul\n{implementation}", encoding="utf-8")
    return load(file).kernels[0].implementations[0].specialized


def block(macros: str, builds: str, more: str = "") -> str:
    return f"    source: a.cpp\n{more}    specialize:\n      macros: {macros}\n      builds: {builds}\n"


def test_macros_and_builds(tmp_path: Path) -> None:
    """Macros keep the order of the file, and builds are their values whatever the order of keys."""
    found = read(tmp_path, block("{COLS: input.size(-1), K: 'k[0]'}", "[{K: 3, COLS: 768}, {COLS: 0, K: 1}]"))
    assert found == Specialized(
        macros=("COLS", "K"), sizes=("input.size(-1)", "k[0]"), builds=((768, 3), (0, 1))
    )
    assert found.named(found.builds[0]) == {"COLS": 768, "K": 3}
    assert read(tmp_path, "    source: a.cpp\n") is None


@pytest.mark.parametrize(
    ("implementation", "line", "complaint"),
    [
        (block("{COLS: input.size(-1)}", "[]"), 8, "builds of .* has 0 entries"),
        (block("{}", "[{}]"), 6, "has no macro"),
        (block("{COLS: input.size(-1) + 1}", "[{COLS: 7}]"), 7, "is not a size of an argument"),
        (block("{COLS: input.stride(0)}", "[{COLS: 7}]"), 7, "is not a size of an argument"),
        (block("{1COLS: n}", "[{1COLS: 7}]"), 7, '"1COLS" is not the name of a macro'),
        (block("{COLS: n}", "[{COLS: 7}, {COLS: 7}]"), 8, "has the same twice, first in line 8"),
        (block("{COLS: n, K: m}", "[{COLS: 7}]"), 8, '"K"'),
        (block("{COLS: n}", "[{COLS: 7, KOLS: 1}]"), 8, 'unknown key "KOLS"'),
        (block("{COLS: n}", "[{COLS: -1}]"), 8, "whole number"),
        (
            block("{COLS: n}", "[{COLS: 3000000000}]"),
            8,
            '"COLS" in build 1 of .* is 3000000000, not within 0 to 2147483647',
        ),
        (block("{COLS: n}", "[{COLS: many}]"), 8, "COLS"),
        (block("{COLS: n}", "[" + ", ".join(f"{{COLS: {i}}}" for i in range(17)) + "]"), 8, "has 17 entries"),
        (block("{COLS: n}", "[{COLS: 7}]", "    defines: {COLS: 1}\n"), 8, '"COLS" is in defines as well'),
        ("    source: a.cpp\n    specialize: {macros: {COLS: n}}\n", 6, "builds"),
        ("    source: a.cpp\n    specialize: {macro: {COLS: n}}\n", 6, 'unknown key "macro"'),
        (
            "    source: b.cu\n    contract: device\n    specialize: {macros: {N: n}, builds: [{N: 1}]}\n",
            7,
            '"specialize" has no effect',
        ),
        (
            "    target: c:f\n    device: cpu\n    specialize: {macros: {N: n}, builds: [{N: 1}]}\n",
            7,
            '"specialize" has no effect',
        ),
    ],
)
def test_every_mistake_has_its_line(tmp_path: Path, implementation: str, line: int, complaint: str) -> None:
    """What is wrong is told with file and line."""
    with pytest.raises(ConfigError, match=rf"cgins\.yaml:{line}: .*{complaint}") as raised:
        read(tmp_path, implementation)
    assert raised.value.remedy


@given(st.text(alphabet="abN_019-.[]()sizehpenumdl ", max_size=24))
def test_sizes_are_read_or_refused(text: str) -> None:
    """Any text is a size of one argument, or none."""
    found = specialize.parse(text)
    assert found is None or (found.argument.isidentifier() and found.argument in text)


def tensor(shape: tuple[int, ...]) -> TensorMeta:
    return TensorMeta(dtype="float32", shape=shape, stride=(1,) * len(shape), offset=0, storage=0)


CALL = OpCall(
    op="torch.it",
    arguments=tuple(
        Argument(name=name, value=value, passed="positional")
        for name, value in {
            "self.weight": Value(kind="tensor", value=0),
            "n": Value(kind="int", value=4),
            "flag": Value(kind="bool", value=True),
            "rate": Value(kind="float", value="0x1.0p+0"),
            "none": Value(kind="none"),
            "k": Value(kind="tuple", items=(Value(kind="int", value=5), Value(kind="int", value=6))),
        }.items()
    ),
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("self_weight.size(-1)", 3), ("self_weight.shape[0]", 2), ("self_weight.size(2)", None), ("self_weight.ndim", 2),
        ("self_weight.numel()", 6), ("self_weight", None), ("n", 4), ("n[0]", 4), ("n[1]", None), ("n.ndim", None), ("flag", 1),
        ("rate", None), ("none", None), ("none.size(0)", None), ("k[1]", 6), ("k[-2]", 5), ("k[2]", None), ("k", None),
        ("other", None), ("n + 1", None),
    ],
)  # fmt: skip
def test_sizes_of_a_recorded_call(text: str, value: int | None) -> None:
    """A recorded call has the sizes that the built library would see, or none."""
    assert specialize.value_of(text, CALL, [tensor((2, 3))]) == value


def test_builds_that_no_call_takes() -> None:
    """All macros of a build must be met by one call."""
    it = Specialized(macros=("N", "K"), sizes=("n", "k[0]"), builds=((4, 5), (4, 6), (5, 5)))
    assert specialize.unmet(it, [(CALL, [tensor((2, 3))])]) == ((4, 6), (5, 5))
