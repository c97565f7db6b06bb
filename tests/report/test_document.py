"""The JSON document and its published schema."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from reports import report_of

from pytest_cgins.core import documents
from pytest_cgins.core.session_report import REPORT_VERSION, Evaluation, SessionReport
from pytest_cgins.core.verdict import Status
from pytest_cgins.report import document
from tests.json_schemas import published_schema

Make = Callable[..., Evaluation]


@pytest.fixture
def report(make_evaluation: Make) -> SessionReport:
    wrong = make_evaluation(Status.INCORRECT, signature="a", share=3.0)
    return report_of(make_evaluation(signature="b"), wrong)


def test_document_is_read_back_as_it_was(report: SessionReport, tmp_path: Path) -> None:
    """What is written is what was found, ordered by case name."""
    document.write(report, tmp_path / "new" / "folder" / "report.json")
    read = documents.load(SessionReport, (tmp_path / "new" / "folder" / "report.json").read_bytes())
    assert read == report
    assert [evaluation.case.signature for evaluation in read.evaluations] == ["a", "b"]
    assert read.started_at == "2026-01-02T03:04:05+00:00"


def test_older_reports_are_read(report: SessionReport) -> None:
    """A report from before there were `strict` and the cases' `config` was not strict, and knows no file."""
    data = json.loads(documents.dump(report))
    del data["strict"]
    for evaluation in data["evaluations"]:
        del evaluation["config"]
    assert documents.load(SessionReport, json.dumps(data)) == report


def test_failed_write_leaves_the_old_file(
    report: SessionReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If writing breaks off, the file of the run before is whole and nothing is left beside it."""
    path = tmp_path / "report.json"
    path.write_text("old")

    def interrupted(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        document.write(report, path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.json"]
    assert path.read_text() == "old"


def test_others_may_read_the_file(report: SessionReport, tmp_path: Path) -> None:
    """The file's mode is that of any new file."""
    document.write(report, tmp_path / "report.json")
    (tmp_path / "plain").touch()
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("report.json", "plain")]
    assert modes[0] == modes[1]


def test_published_schema_is_current() -> None:
    """The packaged schema is the one that the dataclasses give; `make schemas` writes it anew."""
    published = files("pytest_cgins") / "schemas" / f"report-{REPORT_VERSION}.json"
    assert json.loads(published.read_text(encoding="utf-8")) == published_schema(SessionReport)


def test_document_fits_the_schema(report: SessionReport) -> None:
    """A validator accepts a written report and refuses one with a key too many."""
    data = json.loads(documents.dump(report))
    validator = jsonschema.Draft202012Validator(published_schema(SessionReport))
    validator.validate(data)
    with pytest.raises(jsonschema.ValidationError, match="extra"):
        validator.validate({**data, "extra": 1})
