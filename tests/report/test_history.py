"""What a line of a history says of a case."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports import CPU, STARTED, report_of

from pytest_cgins.core import documents
from pytest_cgins.core.environment_key import hard_key, soft_key
from pytest_cgins.core.measurement import Arm, Comparison
from pytest_cgins.core.session_report import Environment, Evaluation, SessionReport
from pytest_cgins.core.verdict import Status
from pytest_cgins.report.history import HISTORY_VERSION, Head, HistoryEntry, Ratio, entries
from pytest_cgins.timing.sequential import Rule, SequentialTest
from tests.json_schemas import published_schema

Make = Callable[..., Evaluation]
HEAD = Head(commit="c" * 40, dirty=True, branch="main")
CUDA = Environment(device="cuda", device_name="a GPU", python="3.11.2", torch="2.13", device_uuid="GPU-7")


def report(*evaluations: Evaluation) -> SessionReport:
    return report_of(*evaluations, environments=[CPU, CUDA], version="1.2")


def compared(against: str, log_ratio: float) -> Comparison:
    rule = Rule(tolerate=0.02, catch=0.05, alpha=0.01, beta=0.01, tests=1, most_blocks=50)
    test = SequentialTest(rule)
    for shift in (-0.01, 0.0, 0.01):
        test.add(log_ratio + shift)
    return test.comparison("base" if against == "base" else "torch")


def test_an_entry_says_all_that_a_trend_needs(make_evaluation: Make) -> None:
    """Key, commit, arms, ratios, status."""
    (found,) = entries(report(replace(make_evaluation(), config="a/cgins.yaml")), HEAD)
    assert (found.version, found.cgins, found.seed) == (HISTORY_VERSION, "1.2", 7)
    assert found.when == STARTED
    assert (found.head, found.config, found.case) == (HEAD, "a/cgins.yaml", "scale/cpu-cpp/tiny/f32-2x3-0001")
    assert found.hard == hard_key(CPU, {"trace": "0" * 16, "cache": "warm", "method": "perf-counter"})
    assert found.soft == soft_key(CPU)
    assert (found.status, found.blocks, found.kernel_ns) == (Status.PASSED, 1, 1000.0)
    assert found.median_ns_per_call == {"kernel": 1000.0, "torch": 2000.0}
    assert found.calls_per_batch == {"kernel": 1, "torch": 1}
    assert found.ratio_to_torch == Ratio(ratio=0.5, low=0.5, high=0.5, interval="quartiles")
    assert found.ratio_to_base is None


def test_ratios_that_were_tested_have_the_test_s_interval(make_evaluation: Make) -> None:
    """Against the base revision, and against torch where a floor is declared; more arms have their times."""
    made = make_evaluation(device="cuda:0")
    assert made.measurement is not None
    base = Arm(
        name="base",
        samples_ns_per_call=(900.0,) * 2,
        calls_per_batch=4,
        median_ns_per_call=900.0,
        iqr_ns_per_call=0.0,
    )
    measured = replace(
        made.measurement,
        base=base,
        base_revision="b" * 40,
        comparisons=(compared("base", 0.1), compared("torch", -0.7)),
    )
    (found,) = entries(report(replace(made, measurement=measured)), HEAD)
    assert found.ratio_to_base is not None
    assert found.ratio_to_base.interval == found.ratio_to_torch.interval == "median-95"
    assert found.ratio_to_base.low < found.ratio_to_base.ratio == pytest.approx(1.105, rel=1e-3)
    assert found.ratio_to_torch.ratio == pytest.approx(0.4966, rel=1e-3)
    assert (found.median_ns_per_call["base"], found.calls_per_batch["base"]) == (900.0, 4)
    assert (found.base_revision, found.device_uuid) == ("b" * 40, "GPU-7")


def test_the_quartiles_of_a_speedup_change_places(make_evaluation: Make) -> None:
    """The highest speedup is the lowest ratio."""
    made = make_evaluation()
    assert made.measurement is not None
    measured = replace(made.measurement, speedup_vs_torch=2.0, speedup_low=1.6, speedup_high=2.5)
    (found,) = entries(report(replace(made, measurement=measured)), HEAD)
    assert found.ratio_to_torch == Ratio(ratio=0.5, low=0.4, high=0.625, interval="quartiles")


def test_what_was_not_timed_has_no_entry(make_evaluation: Make) -> None:
    """Nor has a case of a device that nobody described."""
    untimed = make_evaluation(times_ns=None, signature="a")
    assert list(entries(report(untimed, make_evaluation(Status.SKIPPED, signature="b")), HEAD)) == []
    timed = replace(report(make_evaluation(device="cuda:0")), environments=(CPU,))
    assert list(entries(timed, HEAD)) == []


def test_an_entry_is_one_line_that_is_read_back(make_evaluation: Make) -> None:
    """Names with line breaks and all; its size is what the file's limit is chosen for."""
    (found,) = entries(report(make_evaluation(kernel="a\nb\u2028c")), HEAD)
    text = documents.dump(found)
    assert "\n" not in text
    assert text.startswith('{"version":')
    assert len(text) < 2000
    assert documents.load(HistoryEntry, text) == found


@given(st.floats())
def test_only_times_that_can_be_are_taken(value: float) -> None:
    """Positive and finite."""
    if 0 < value < float("inf"):
        assert Ratio(ratio=value, low=value, high=value, interval="quartiles").ratio == value
    else:
        with pytest.raises(ValueError, match="ratio is "):
            Ratio(ratio=value, low=1.0, high=1.0, interval="quartiles")


def test_published_schema_is_current_and_fits(make_evaluation: Make) -> None:
    """The packaged schema is the one that the dataclasses give, and a line is valid by it."""
    published = files("pytest_cgins") / "schemas" / f"history-{HISTORY_VERSION}.json"
    assert json.loads(published.read_text(encoding="utf-8")) == published_schema(HistoryEntry)
    (found,) = entries(report(make_evaluation()), HEAD)
    validator = jsonschema.Draft202012Validator(published_schema(HistoryEntry))
    validator.validate(json.loads(documents.dump(found)))
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({**json.loads(documents.dump(found)), "more": 1})
