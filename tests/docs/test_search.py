"""search.md, typed in: a whole search, whose answers were recorded."""

from __future__ import annotations

import json
import shutil
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from tables import document
from walk import run

from pytest_cgins.core import documents
from pytest_cgins.regenerate.methods.classes import METHODS_VERSION, MethodMemory
from pytest_cgins.regenerate.search.summary_model import SearchSummary
from pytest_cgins.run.sandbox.sandbox import Sandbox
from tests.json_schemas import published_schema
from tests.regenerate.prompts.example import PROJECT

NEEDS_SANDBOX = pytest.mark.skipif(bool(Sandbox().available()), reason="this host gives no sandbox")
METHODS = "cpu-polynomial-functions", "cpu-threads-over-rows", "cpu-software-prefetch"


@NEEDS_SANDBOX
@pytest.mark.exam
def test_every_step_prints_what_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The commands print the quoted lines, and the files that the text names are there and keep their schemas."""
    for part in ("traces/gpt2", "conversations"):
        shutil.copytree(PROJECT / part, tmp_path / part)
    monkeypatch.chdir(tmp_path)
    assert [line.split()[1] for line in run(document("search.md"), capfd)] == ["generate", "runs", "runs"]
    (search,) = tmp_path.glob(".cgins/runs/*/gelu-cpu-cpp-faster")
    profiled = (search / "attempt-01" / "analysis.md").read_text()
    assert "Profile of <code>gelu/cpu-cpp/gpt2/" in profiled
    assert "GFLOP/s" in profiled
    told = documents.load(SearchSummary, (search / "summary.json").read_bytes())
    assert told.headline is not None
    assert all(case.gflops_before and case.gflops_after for case in told.headline.cases)
    assert told.retrospective.never_named
    assert not {*told.retrospective.never_named} & {*METHODS}

    schema = json.loads((files("pytest_cgins") / "schemas" / f"methods-{METHODS_VERSION}.json").read_text())
    assert schema == published_schema(MethodMemory)
    remembered = json.loads((tmp_path / ".cgins/methods.json").read_text())
    jsonschema.validate(remembered, schema)
    assert {one["method"] for one in remembered["tried"]} == {*METHODS[:2]}
