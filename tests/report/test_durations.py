"""The file of how long cases took."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Status
from pytest_cgins.report import durations


def test_what_other_cases_took_stays(tmp_path: Path, make_evaluation: Callable[..., Evaluation]) -> None:
    """A run with -k replaces what it has timed; what was skipped took no time, and is not put down."""
    file = tmp_path / "durations.json"
    durations.write(
        file,
        [
            replace(make_evaluation(signature="a"), seconds=1.234),
            replace(make_evaluation(signature="b"), seconds=2.0),
        ],
    )
    durations.write(
        file,
        [
            replace(make_evaluation(signature="a"), seconds=3.0),
            replace(make_evaluation(signature="c", status=Status.SKIPPED), seconds=0.0),
        ],
    )
    seconds = json.loads(file.read_text())["seconds"]
    assert [name.rpartition("/")[2] for name in seconds] == ["a", "b"]
    assert [*seconds.values()] == [3.0, 2.0]
    assert durations.read(file).digest != durations.Durations(version=1, seconds={}).digest


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1}', '{"version": 1, "seconds": {"a": "long"}}'])
def test_what_is_no_such_file_is_refused(tmp_path: Path, text: str) -> None:
    """Cut by nothing, each part would have other cases than the rest believe."""
    file = tmp_path / "durations.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match="has no durations") as caught:
        durations.read(file)
    assert "write it anew" in str(caught.value)
