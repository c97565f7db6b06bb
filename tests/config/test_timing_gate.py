"""`gate` of cgins.yaml: what comes before what, and how mistakes are told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_cgins.config import PROFILES, Config, ResourceLimits, TimingGate, load
from pytest_cgins.core.errors import ConfigError

STRICT = PROFILES["strict"]
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.cpp").touch()
    return tmp_path


def read(folder: Path, file: str = "", kernel: str = "") -> Config:
    """A file with one kernel; `file` and `kernel` are what stands in their gates, "" for no gate."""
    lines = ["version: 1", *([f"gate: {{{file}}}"] if file else []), "kernels:", "  it:", "    op: torch.mul"]
    lines += ["    source: a.cpp", *([f"    gate: {{{kernel}}}"] if kernel else [])]
    (folder / "cgins.yaml").write_text("\n".join(lines), encoding="utf-8")
    return load(folder / "cgins.yaml")


def timing(folder: Path, file: str = "", kernel: str = "") -> TimingGate:
    return read(folder, file, kernel).kernels[0].timing


def refused(folder: Path, file: str = "", kernel: str = "") -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read(folder, file, kernel)
    return caught.value


def test_nothing_said(folder: Path) -> None:
    """Without any gate the profile default holds, and the option's own default names the baseline."""
    config = read(folder)
    assert config.kernels[0].timing == TimingGate() == PROFILES["default"]
    assert config.baseline == ""


def test_every_key_of_the_file(folder: Path) -> None:
    """All keys of the file's gate reach each kernel, and the baseline reaches the configuration."""
    config = read(
        folder,
        "tolerate: 3%, catch: 0.08, floor_vs_torch: 90%, fail_on: never, alpha: 1e-3, beta: 5%, max_blocks: 32, "
        "cache: warm, baseline: origin/main~2",
    )
    assert config.kernels[0].timing == TimingGate(
        tolerate=0.03, catch=0.08, floor_vs_torch=0.9, fail_on="never", alpha=0.001, beta=0.05, max_blocks=32,
        cache="warm",
    )  # fmt: skip
    assert config.baseline == "origin/main~2"


def test_every_key_of_a_kernel(folder: Path) -> None:
    """A kernel's gate holds its times' keys beside those of its resources."""
    (kernel,) = read(
        folder, "alpha: 0.02",
        "tolerate: 3%, catch: 8%, floor_vs_torch: 2, fail_on: inconclusive, beta: 0.05, max_blocks: 32, cache: warm, "
        "registers: 64, spill_bytes: 8",
    ).kernels  # fmt: skip
    assert kernel.timing == TimingGate(
        tolerate=0.03, catch=0.08, floor_vs_torch=2.0, fail_on="inconclusive", alpha=0.02, beta=0.05, max_blocks=32,
        cache="warm",
    )  # fmt: skip
    assert kernel.limits == ResourceLimits(registers=64, spill_nbytes=8)


@pytest.mark.parametrize(
    ("file", "kernel", "expected"),
    [
        ("profile: strict", "", STRICT),
        ("profile: strict, tolerate: 2%", "", replace(STRICT, tolerate=0.02)),
        ("", "profile: strict", STRICT),
        ("profile: strict", "tolerate: 2%", replace(STRICT, tolerate=0.02)),
        ("tolerate: 3%, catch: 9%, cache: warm", "profile: strict", replace(STRICT, cache="warm")),
        ("catch: 9%", "tolerate: 1%", TimingGate(tolerate=0.01, catch=0.09)),
        ("profile: strict", "profile: default, catch: 6%", TimingGate(catch=0.06)),
        ("fail_on: never", "fail_on: regression", TimingGate()),
        ("fail_on: never", "registers: 3", TimingGate(fail_on="never")),
    ],
)  # fmt: skip
def test_what_comes_first(folder: Path, file: str, kernel: str, expected: TimingGate) -> None:
    """A kernel comes before the file, its profile too; in one place explicit keys come before the profile."""
    assert timing(folder, file, kernel) == expected


@pytest.mark.parametrize("word", ["none", "false", "off", '"none"'])
def test_floor_switched_off(folder: Path, word: str) -> None:
    """A kernel can be excused from the file's floor."""
    assert timing(folder, "floor_vs_torch: 0.9").floor_vs_torch == 0.9
    assert timing(folder, "floor_vs_torch: 0.9", f"floor_vs_torch: {word}").floor_vs_torch is None


@pytest.mark.parametrize("word", ["none", "merge-base", "v1.2", "HEAD~3", "1234567", '"12e4567"', "12e45"])
def test_baselines(folder: Path, word: str) -> None:
    """A baseline is taken as it is written, commits that look like numbers included."""
    assert read(folder, f"baseline: {word}").baseline == word.strip('"')


@pytest.mark.parametrize(
    ("file", "kernel", "what", "remedy"),
    [
        ("tolerate: 5%", "", "cgins.yaml:2: gate of the file has tolerate 5% (line 2), which is not below catch 5% (default)",
         "let catch be the greater of both"),
        ("tolerate: 4%, catch: 9%", "profile: strict, tolerate: 3%",
         'cgins.yaml:7: gate of kernel "it" has tolerate 3% (line 7), which is not below catch 3% (profile strict, line 7)',
         "let catch be the greater of both"),
        ("tolerate: 4%, catch: 9%", "catch: 3%",
         'cgins.yaml:7: gate of kernel "it" has tolerate 4% (line 2), which is not below catch 3% (line 7)',
         "let catch be the greater of both"),
        ("tolerate: 2", "", 'cgins.yaml:2: "tolerate" in gate of the file is 2, which is 200%', "write 2% if that"),
        ("catch: fast", "", '"catch" in gate of the file is fast, not a share of the time', "2% or 0.02"),
        ("catch: -1%", "", "is -1%, not a share of the time", "2% or 0.02"),
        ("catch: .nan", "", "is .nan, not a share of the time", "2% or 0.02"),
        ("catch: 0", "", "is 0, not above 0", "e.g. 5%"),
        ("catch:", "", "is empty, not a share", "2% or 0.02"),
        ("catch: [1]", "", '"catch" in gate of the file is a list, not a single value', "write a single value"),
        ("floor_vs_torch: 0", "", "is 0, not a speed above 0 and up to 1000 times torch's", "or none"),
        ("floor_vs_torch: true", "", "is true, not a speed above 0", "or none"),
        ("floor_vs_torch:", "", "is empty, not a speed above 0", "or none"),
        ("alpha: 0", "", '"alpha" in gate of the file is 0, not a chance above 0 and up to 0.5', "0.01 or 1%"),
        ("beta: 60%", "", "is 60%, not a chance above 0 and up to 0.5", "0.01 or 1%"),
        ("max_blocks: 9", "", "is 9, too few to prove anything", "write 10 to 10000; the profile default has 64"),
        ("max_blocks: 10001", "", "is 10001, more than any run has time for", "write 10 to 10000"),
        ("max_blocks: 1.5", "", "not a whole number", "write a whole number"),
        ("fail_on: regresion", "", '"fail_on" in gate of the file is "regresion"', "regression"),
        ("cache: cool", "", '"cache" in gate of the file is "cool"', "cold"),
        ("profile: strickt", "", '"profile" in gate of the file is "strickt"', "strict"),
        ("baseline: null", "", "is null, not the name of a commit", "write merge-base, none, or a commit"),
        ("baseline: false", "", "is false, not the name of a commit", "write merge-base, none"),
        ("baseline: --output=x", "", "is --output=x, not the name of a commit", "write merge-base, none"),
        ("registers: 1", "", '"registers" in gate of the file: only kernels have it', "write it in a kernel's gate"),
        ("", "alpha: 1%", 'cgins.yaml:6: "alpha" in gate of kernel "it": all kernels of a run share it',
         "write it in the gate of the file"),
        ("", "baseline: none", '"baseline" in gate of kernel "it": all kernels', "write it in the gate of the file"),
        ("", "tolerat: 1%", 'cgins.yaml:6: unknown key "tolerat" in gate of kernel "it"', "tolerate"),
        ("catsh: 1%", "", 'cgins.yaml:2: unknown key "catsh" in gate of the file', "catch"),
    ],
)  # fmt: skip
def test_mistakes(folder: Path, file: str, kernel: str, what: str, remedy: str) -> None:
    """A wrong value is an error with file, line, value and remedy, after everything is put together."""
    error = refused(folder, file, kernel)
    assert what in error.what
    assert error.what.startswith("cgins.yaml:")
    assert remedy in error.remedy


@QUICK
@given(st.integers(1, 10_000))
def test_percentages_are_fractions(folder: Path, hundredths: int) -> None:
    """`2.5%`, `0.025` and `25e-3` are the same number, to the last bit."""
    whole, rest = divmod(hundredths, 100)
    written = (
        f"{whole}.{rest:02}%",
        f"0.{hundredths:04}" if hundredths < 10_000 else "1.0",
        f"{hundredths}e-4",
    )
    found = {timing(folder, f"tolerate: 0, catch: {text}").catch for text in written}
    assert found == {hundredths / 10_000}


JUNK = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)
VALUES = st.one_of(
    st.floats().map(repr), st.integers().map(str), st.floats(0, 3).map("{}%".format), JUNK,
    st.sampled_from(["none", "false", "strict", "warm", "never", "~", "[]", "{}", "2 %", "1_0"]),
)  # fmt: skip
KEYS = st.sampled_from(
    ["profile", "tolerate", "catch", "floor_vs_torch", "fail_on", "alpha", "beta", "max_blocks", "cache", "baseline"]
)  # fmt: skip


def outcome(folder: Path, file: str, kernel: str) -> tuple[ConfigError | None, TimingGate]:
    try:
        return None, timing(folder, file, kernel)
    except ConfigError as error:
        return error, TimingGate()


@QUICK
@given(st.dictionaries(KEYS, VALUES, max_size=4), st.dictionaries(KEYS, VALUES, max_size=4))
def test_anything_is_a_rule_or_an_error(folder: Path, file: dict[str, str], kernel: dict[str, str]) -> None:
    """Whatever is written, there is an error of ours, or limits that a test can work with."""
    said = [", ".join(f"{key}: {value}" for key, value in part.items()) for part in (file, kernel)]
    error, gate = outcome(folder, *said)
    if error is not None:
        assert error.what.startswith("cgins.yaml")
        assert error.remedy
        return
    assert 0 <= gate.tolerate < gate.catch <= 1
    assert 0 < gate.alpha <= 0.5
    assert 0 < gate.beta <= 0.5
    assert 10 <= gate.max_blocks <= 10_000
    assert gate.floor_vs_torch is None or 0 < gate.floor_vs_torch <= 1000
