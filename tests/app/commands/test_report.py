"""`cgins summary`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from reports import report_of

from pytest_cgins.app import cli
from pytest_cgins.core.session_report import REPORT_VERSION, Evaluation
from pytest_cgins.core.verdict import Status
from pytest_cgins.report import document

Make = Callable[..., Evaluation]


@pytest.fixture
def file(make_evaluation: Make, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A report with one weak case, under `--cgins-strict` on request."""
    weak = make_evaluation(Status.WEAK, accepted=("ones",))
    report = report_of(weak, exit_status=0, strict=getattr(request, "param", False))
    path = tmp_path / "a report.json"
    document.write(report, path)
    return path


@pytest.mark.parametrize(
    ("file", "heading", "counted"),
    [(False, b"1 passed (1 weak)\n", b"passed=1\nfailed=0"), (True, b"1 failed, 0 ", b"passed=0\nfailed=1")],
    indirect=["file"],
)
def test_markdown_and_counts_are_printed(
    file: Path, heading: bytes, counted: bytes, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Markdown by default, counts on request; whether the run was strict the report says."""
    assert cli.main(["summary", str(file)]) == 0
    assert capfdbinary.readouterr().out.startswith(b"## cgins: " + heading)
    assert cli.main(["summary", "--format=counts", str(file)]) == 0
    assert capfdbinary.readouterr().out == (
        b"total=1\n" + counted + b"\nregressed=0\nerrors=0\nskipped=0\nweak=1\nverdict=WEAK\n"
    )


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"version": 2, "cgins": "::error::x"}', "\udcff"])
def test_damaged_report_is_a_clear_error(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is not a report ends in exit 2, with the file's name and the remedy."""
    path = tmp_path / "report.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    assert cli.main(["summary", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"cgins: {path} is not a report: ")
    assert said.endswith("→ give it the file that --cgins-json wrote, by the same version of pytest-cgins\n")
    assert said.count("\n") == 2


def test_report_of_another_version_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A later version may mean other things by the same fields."""
    whole = json.loads(file.read_text())
    for other in (1, 99):
        for text in ({**whole, "version": other}, {"version": other, "speed": "of light"}):
            file.write_text(json.dumps(text))
            assert cli.main(["summary", str(file)]) == 2
            told = capsys.readouterr().err
            assert f"{file}: a report of version {other}; this one reads {REPORT_VERSION}" in told


def test_missing_oversized_and_cramped_are_told(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is not there or too large, and a limit without room, are named."""
    assert cli.main(["summary", "nowhere.json"]) == 2
    assert "nowhere.json: No such file or directory" in capsys.readouterr().err
    assert cli.main(["summary", "--max-bytes=10", str(file)]) == 2
    assert "--max-bytes: 10 bytes are fewer than" in capsys.readouterr().err
    monkeypatch.setattr(document, "REPORT_LIMIT_NBYTES", 10)
    assert cli.main(["summary", str(file)]) == 2
    assert "bytes are not a report of pytest-cgins" in capsys.readouterr().err
