"""`probes`, `repeatable`, `claims` and `precision` of a kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cgins.config import KernelEntry, load
from pytest_cgins.config.model import ProbeException, Repeatability
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
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, keys: str, message: str) -> None:
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
    plain = kernel(tmp_path, "tolerance: derived")
    assert (plain.claims, plain.allow_tf32, plain.exceptions) == ((), False, ())
