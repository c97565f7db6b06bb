"""`work` of a kernel in cgins.yaml: expressions and numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cgins.config import DeclaredWork, load
from pytest_cgins.core.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.cpp").touch()
    return tmp_path


def work(folder: Path, text: str) -> DeclaredWork:
    lines = ["version: 1", "kernels:", "  it:", "    op: torch.mul", "    source: a.cpp", f"    work: {text}"]
    (folder / "cgins.yaml").write_text("\n".join(lines), encoding="utf-8")
    return load(folder / "cgins.yaml").kernels[0].work


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{flops: 2e9}", DeclaredWork(flops="2e9")),
        ("{flops: 2.0e+9}", DeclaredWork(flops="2.0e+9")),
        ("{bytes: 4096}", DeclaredWork(nbytes="4096")),
        ("{bytes: 2 * input.numel() * input.itemsize}", DeclaredWork(nbytes="2 * input.numel() * input.itemsize")),
        ('{bytes: "input.nbytes", flops: "prod(x.shape) // 2"}', DeclaredWork(nbytes="input.nbytes", flops="prod(x.shape) // 2")),
    ],
)  # fmt: skip
def test_what_is_declared(folder: Path, text: str, expected: DeclaredWork) -> None:
    """Numbers and expressions are kept as they are written; what is not said is empty."""
    assert work(folder, text) == expected


@pytest.mark.parametrize(
    ("text", "what", "remedy"),
    [
        ("{bytes: 2 *}", 'cgins.yaml:6: "bytes" in work of kernel "it" is 2 *: \'2 *\' is not an expression', "write arithmetic"),
        ("{flops: x.nbites}", "tensors have no 'nbites' here; did you mean \"nbytes\"?", "write arithmetic"),
        ("{flops: __import__(x)}", "there is no function '__import__'", "write arithmetic"),
        ("{flops: -5}", "'-5' is -5, not a number from 0 up to 2^63", "or a number: 2e9"),
        ("{flops: 1 / 0}", "division by zero", "write arithmetic"),
        ("{flops: 1e30}", "is 1e+30, not a number from 0", "write arithmetic"),
        ("{flops: true}", "is true: no expression", "write arithmetic"),
        ("{flops: }", "is empty: no expression", "write arithmetic"),
        ("{flops: [1]}", '"flops" in work of kernel "it" is a list', "write a single value"),
        ("{}", 'work of kernel "it" is empty', "write {bytes: EXPRESSION}, {flops: EXPRESSION} or both"),
        ("2e9", '"work" in kernel "it" is text (2e9), not a mapping', "write a mapping"),
        ("{byte: 1}", 'unknown key "byte" in work of kernel "it"', "bytes"),
    ],
)  # fmt: skip
def test_mistakes(folder: Path, text: str, what: str, remedy: str) -> None:
    """What no call could make right is an error with file and line."""
    with pytest.raises(ConfigError) as caught:
        work(folder, text)
    assert what in caught.value.what
    assert caught.value.what.startswith("cgins.yaml:6: ")
    assert remedy in caught.value.remedy
