"""The shipped methods, and what a user's file may say."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.core import documents
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.regenerate.methods import registry
from pytest_cgins.regenerate.methods.definition import AXES, FAMILIES, Method, Trigger

SHIPPED = registry.shipped()

GOOD = """
version: 1
methods:
  my-trick:
    title: A trick
    axis: memory
    priority: 2
    what: It does this, and helps there.
    languages: [cuda]
    how: {cuda: so}
    families: [norm]
    dtypes: [float16]
    capability: 80-89
    triggers:
      - {metric: share_of_bandwidth, good: 0.9, bad: 0.3}
    sass:
      - {sm: 80, any: ['LDG']}
    requires: [async-copy]
    conflicts: [tma-load]
    risks: [a race]
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "methods.yaml"
    file.write_text(text)
    return file


def test_there_are_enough_methods_of_each_axis() -> None:
    """At least 22 for a GPU's arithmetic, 22 for memory, 19 for waiting, and some of each for a CPU."""
    counts = Counter((method.device, method.axis) for method in SHIPPED)
    assert counts["cuda", "compute"] >= 22
    assert counts["cuda", "memory"] >= 22
    assert counts["cuda", "latency"] >= 19
    assert all(counts["cpu", axis] for axis in AXES)


@pytest.mark.parametrize("method", SHIPPED, ids=lambda method: method.id)
def test_each_method_says_what_a_model_needs(method: Method) -> None:
    """Texts of a few sentences, known architectures, and how for languages that can write it."""
    assert 2 <= len(re.findall(r"[.:;](?:\s|$)", method.what)) <= 8
    assert 80 <= len(method.what) <= 500
    assert method.priority in (1, 2, 3)
    assert set(method.how) <= set(method.languages)
    assert (
        method.how or method.device == "cpu" or method.id in {"wave-quantization", "recompute-cheap-values"}
    )
    if method.device == "cuda":
        assert 70 <= method.least_capability <= 100
        for signature in method.signatures:
            assert signature.most >= method.least_capability
    else:
        assert method.languages == ("cpp",)
        assert not method.signatures


def test_every_workload_has_methods_of_each_axis() -> None:
    """Something can be offered for any workload, axis and language."""
    for family in FAMILIES:
        for language in ("cuda", "triton", "cute", "cpp"):
            found = {one.axis for one in SHIPPED if one.suits((family,)) and language in one.languages}
            assert found == set(AXES), (family, language)


def test_requirements_can_be_met_where_the_method_runs() -> None:
    """On each architecture that has a method, one of the methods that it requires is there, too."""
    for method in SHIPPED:
        for arch in (70, 75, 80, 86, 89, 90, 100, 103, 120):
            if method.device == "cuda" and method.requires and method.runs_on(arch):
                assert any(SHIPPED.get(name).runs_on(arch) for name in method.requires), (method.id, arch)


def test_severity_goes_from_good_to_bad() -> None:
    """0 at the good value and beyond, 1 at the bad one and beyond, in both directions."""
    higher = Trigger(metric="share_of_bandwidth", good=0.8, bad=0.4)
    assert higher.direction == "higher"
    assert [higher.severity(value) for value in (0.9, 0.8, 0.6, 0.4, 0.1)] == pytest.approx([0, 0, 0.5, 1, 1])
    lower = Trigger(metric="spill_nbytes", good=0, bad=64)
    assert lower.direction == "lower"
    assert [lower.severity(value) for value in (0, 16, 640)] == pytest.approx([0, 0.25, 1])


def test_a_users_file_adds_and_corrects(tmp_path: Path) -> None:
    """New methods are added, those with an id of ours take its place, and ours stay as they were."""
    text = GOOD + GOOD.split("methods:\n")[1].replace("my-trick", "vector-access").replace(
        "priority: 2", "priority: 3"
    )
    merged = registry.merged([written(tmp_path, text)])
    assert len(merged) == len(SHIPPED) + 1
    mine = merged.get("my-trick")
    assert (mine.least_capability, mine.most_capability) == (80, 89)
    assert mine.runs_on(89)
    assert not mine.runs_on(90)
    assert not mine.suits(("norm",), ("float32",))
    assert merged.get("vector-access").priority == 3
    assert SHIPPED.get("vector-access").priority == 1
    assert documents.load(Method, documents.dump(mine)) == mine


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("version: 1", "version: 2", r"methods.yaml:2: version 2 of a methods file\n→ write version: 1"),
        ("my-trick:", "My Trick:", r':4: "My Trick" is not a method id\n→ write lower-case words with hyphens'),
        ("priority: 2", "priority: 4", r':7: "priority" in method "my-trick" is 4, not within 1 to 3\n→ write 1 to 3'),
        ("axis: memory", "axis: memorry", r':6: "axis" in method "my-trick" is "memorry"\n→ did you mean "memory"'),
        ("title:", "titel:", r':5: unknown key "titel" in method "my-trick"\n→ did you mean "title"'),
        ("    title: A trick\n", "", r'method "my-trick" has no "title"\n→ write what people call it'),
        ("[norm]", "[norms]", r':11: "families" in method "my-trick" is "norms"\n→ did you mean "norm"'),
        ("how: {cuda: so}", "how: {triton: so}", r'unknown key "triton" in how of method "my-trick"\n→ known keys: cuda'),
        ("80-89", "89-80", r':13: "capability" in method "my-trick" is 89-80\n→ write 80 for sm_80 and later, or 80-89'),
        ("80-89", "ampere", r'"capability" in method "my-trick" is ampere\n'),
        ("share_of_bandwidth", "share_of_bandwith", r'is not a metric\n→ did you mean "share_of_bandwidth"'),
        ("bad: 0.3", "bad: 0.9", r":15: good and bad of a trigger of method \"my-trick\" are both 0.9"),
        ("['LDG']", "['LDG(']", r':17: "LDG\(" in a SASS signature of method "my-trick" is not a regular expression'),
        ("['LDG']", "['(LDG)?']", r"matches anything\n→ begin with an opcode: HMMA"),
        ("any: ['LDG']", "any: []", r"a SASS signature of method \"my-trick\" is empty\n→ leave sass out"),
        ("any: ['LDG']", "any: [A], all: [B]", r"must have either any or all"),
        ("[async-copy]", "[async-coppy]", r'"requires" of method "my-trick" names "async-coppy", which is not a method\n→ did you'),
        ("[tma-load]", "[my-trick]", r'"conflicts" of method "my-trick" names "my-trick", itself'),
        ("[tma-load]", "[async-copy]", r'both requires "async-copy" and conflicts with it\n→ remove one'),
    ],
)  # fmt: skip
def test_errors_say_file_method_value_and_remedy(tmp_path: Path, old: str, new: str, said: str) -> None:
    """Each mistake is told with its line and what to write instead."""
    file = written(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ConfigError, match=said):
        registry.merged([file])


def test_a_name_that_is_not_there_is_told_with_the_nearest() -> None:
    """A misspelt id is an error that names the method that was meant."""
    with pytest.raises(ConfigError, match=r'no method "vector-acces"\n→ did you mean "vector-access"'):
        SHIPPED.get("vector-acces")


@given(text=st.text(alphabet="abmet:- {}[]'\"\n0189.whatsxiple", max_size=200))
def test_no_file_breaks_the_reader(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Any text is methods or a ConfigError."""
    file = written(tmp_path_factory.mktemp("any"), f"version: 1\nmethods:\n  a:\n    title: x\n{text}")
    with pytest.raises(ConfigError):
        registry.merged([file])
