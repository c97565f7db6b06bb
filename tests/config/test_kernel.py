"""`work`, `probes`, `repeatable`, `claims` and `precision` of a kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cgins.config import DeclaredWork, KernelEntry, ProbeException, Ranks, Repeatability, load
from pytest_cgins.core.errors import ConfigError


def kernel(folder: Path, keys: str) -> KernelEntry:
    """A kernel with some more keys."""
    (folder / "k.cpp").write_text("")
    file = folder / "cgins.yaml"
    file.write_text(f"version: 1\nkernels:\n  k:\n    op: torch.relu\n    source: k.cpp\n    {keys}\n")
    return load(file).kernels[0]


def test_a_probe_is_switched_off_with_a_reason(tmp_path: Path) -> None:
    """The reason and the line are kept for reports."""
    found = kernel(tmp_path, 'probes: {late_work: {off: "the caller waits for it"}}').exceptions
    assert found == (ProbeException(probe="late_work", reason="the caller waits for it", line=6),)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("probes: {late_wrok: {off: because it may}}", '6: unknown key "late_wrok" in probes of kernel "k"'),
        ("probes: {late_work: {}}", 'probe "late_work" of kernel "k" has no "off"'),
        ("probes: {late_work: {on: true}}", 'unknown key "on" in probe "late_work" of kernel "k"'),
        ("probes: {late_work: {off: true}}", '"off" in probe "late_work" of kernel "k" is true or false'),
        ("probes: {late_work: {off: why}}", 'the reason for switching late_work off is "why"'),
        ("probes: [late_work]", "is a list, not a mapping"),
        ("repeatable: roughly", '"repeatable" in kernel "k" is "roughly"'),
        ("repeatable: {}", 'repeatable of kernel "k" is empty'),
        ("repeatable: {rtol: -1}", "not a finite number of at least 0"),
        ("claims: strided", "is text (strided), not a list"),
        ("claims: [stridden]", '"claims" in kernel "k" is "stridden"'),
        ("precision: {allow_tf23: true}", 'unknown key "allow_tf23" in precision of kernel "k"'),
        ("precision: {allow_tf32: maybe}", "not true or false"),
        ("ranks: 1", "is 1, not within 2 to 64"),
        ("ranks: {replicated: [weight]}", 'ranks of kernel "k" has no "count"'),
        ("ranks: {count: 2, replicate: [weight]}", 'unknown key "replicate" in ranks of kernel "k"'),
    ],
)
def test_mistakes_in_what_it_may_do(tmp_path: Path, keys: str, message: str) -> None:
    """A misspelt probe, a missing reason or a wrong type is refused by name."""
    with pytest.raises(ConfigError) as caught:
        kernel(tmp_path, keys)
    assert message in str(caught.value)
    assert "cgins.yaml:6" in str(caught.value)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("exact", Repeatability()),
        ("tolerance", Repeatability(kind="tolerance")),
        ("{rtol: 1e-5}", Repeatability(kind="explicit", rtol=1e-5)),
        ("{rtol: 1e-5, atol: 2}", Repeatability(kind="explicit", rtol=1e-5, atol=2.0)),
    ],
)
def test_how_far_answers_may_differ(tmp_path: Path, written: str, expected: Repeatability) -> None:
    """Two words and a mapping."""
    assert kernel(tmp_path, f"repeatable: {written}").repeatability == expected


def test_claims_and_precision(tmp_path: Path) -> None:
    """A claim that is made twice is one; without the keys nothing is claimed and TF32 is not allowed."""
    assert kernel(tmp_path, "claims: [misaligned, strided, strided]").claims == ("misaligned", "strided")
    assert kernel(tmp_path, "precision: {allow_tf32: true}").allow_tf32
    assert kernel(tmp_path, "ranks: 2").ranks == Ranks(count=2)
    ranks = kernel(tmp_path, "ranks: {count: 4, replicated: [weight]}").ranks
    assert ranks == Ranks(count=4, replicated=("weight",))
    plain = kernel(tmp_path, "tolerance: derived")
    assert (plain.claims, plain.allow_tf32, plain.exceptions) == ((), False, ())


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
def test_work(tmp_path: Path, text: str, expected: DeclaredWork) -> None:
    """Numbers and expressions are kept as they are written; what is not said is empty."""
    assert kernel(tmp_path, f"work: {text}").work == expected


@pytest.mark.parametrize(
    ("text", "what", "remedy"),
    [
        ("{bytes: 2 *}", 'cgins.yaml:6: "bytes" in work of kernel "k" is 2 *: \'2 *\' is not an expression', "write arithmetic"),
        ("{flops: x.nbites}", "tensors have no 'nbites' here; did you mean \"nbytes\"?", "write arithmetic"),
        ("{flops: __import__(x)}", "there is no function '__import__'", "write arithmetic"),
        ("{flops: -5}", "'-5' is -5, not a number from 0 up to 2^63", "or a number: 2e9"),
        ("{flops: 1 / 0}", "division by zero", "write arithmetic"),
        ("{flops: 1e30}", "is 1e+30, not a number from 0", "write arithmetic"),
        ("{flops: true}", "is true: no expression", "write arithmetic"),
        ("{flops: }", "is empty: no expression", "write arithmetic"),
        ("{flops: [1]}", '"flops" in work of kernel "k" is a list', "write a single value"),
        ("{}", 'work of kernel "k" is empty', "write {bytes: EXPRESSION}, {flops: EXPRESSION} or both"),
        ("2e9", '"work" in kernel "k" is text (2e9), not a mapping', "write a mapping"),
        ("{byte: 1}", 'unknown key "byte" in work of kernel "k"', "bytes"),
    ],
)  # fmt: skip
def test_mistakes_in_work(tmp_path: Path, text: str, what: str, remedy: str) -> None:
    """What no call could make right is an error with file and line."""
    with pytest.raises(ConfigError) as caught:
        kernel(tmp_path, f"work: {text}")
    assert what in caught.value.what
    assert "cgins.yaml:6: " in caught.value.what
    assert remedy in caught.value.remedy
