"""`cgins doctor` as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.resources import files

import jsonschema
import pytest

from pytest_cgins.core import documents
from pytest_cgins.doctor import services
from pytest_cgins.doctor.findings import DOCTOR_VERSION, DoctorReport
from tests.forked_python import CGINS, ForkedPython
from tests.json_schemas import json_schema

SECRET = "hunter2-do-not-print"
NAMES = [name for names, _ in services.VARIABLES.values() for name in names]


@pytest.fixture(scope="module")
def outputs(forked_python: ForkedPython) -> dict[str, subprocess.CompletedProcess[str]]:
    """Both forms of the output, with a secret in every variable that could hold one."""
    environment = {**os.environ, "COLUMNS": "80", **dict.fromkeys(NAMES, SECRET), "MY_API_KEY": SECRET}
    environment.pop("CI", None)
    return {
        name: forked_python.run([*CGINS, "doctor", *options], env=environment)
        for name, options in {"table": [], "json": ["--json"]}.items()
    }


@pytest.mark.exam
def test_document(outputs: dict[str, subprocess.CompletedProcess[str]]) -> None:
    """--json is one document of the published schema, and the exit status is its own."""
    done = outputs["json"]
    report = documents.load(DoctorReport, done.stdout)
    schema = json.loads((files("pytest_cgins") / "schemas" / f"doctor-{DOCTOR_VERSION}.json").read_text())
    jsonschema.validate(json.loads(done.stdout), schema)
    assert (report.version, done.returncode, done.stderr) == (DOCTOR_VERSION, report.exit_status, "")
    assert not report.probed
    for finding in report.findings:
        assert finding.disables, finding
        assert finding.remedy or finding.state == "ok", finding


def test_machine_that_runs_the_tests_is_ready(outputs: dict[str, subprocess.CompletedProcess[str]]) -> None:
    """Python, torch and the C++ compiler are found here with their versions."""
    report = documents.load(DoctorReport, outputs["json"].stdout)
    required = {one.name: one for one in report.findings if one.required}
    assert set(required) == {"Python", "torch", "C++ compiler"}
    assert {one.state for one in required.values()} == {"ok"}, required
    assert all(one.version for one in required.values())
    assert report.exit_status == 0


def test_table(outputs: dict[str, subprocess.CompletedProcess[str]]) -> None:
    """The table has every finding of the document, no colours in a pipe, and each remedy on one line."""
    report = documents.load(DoctorReport, outputs["json"].stdout)
    text = outputs["table"].stdout
    assert "\x1b[" not in text
    for finding in report.findings:
        assert f"{finding.state:10}{finding.name}" in text
        assert finding.state == "ok" or f"→ {finding.remedy}\n" in text or not finding.remedy


def test_no_secret_is_printed(outputs: dict[str, subprocess.CompletedProcess[str]]) -> None:
    """Variables are told by name and never by value, in neither form."""
    for done in outputs.values():
        assert SECRET not in done.stdout + done.stderr
        assert "OPENAI_API_KEY is set" in done.stdout


def test_published_schema_is_the_dataclasses() -> None:
    """The packaged schema is the one that the dataclasses give; `make schemas` writes it anew."""
    published = files("pytest_cgins") / "schemas" / f"doctor-{DOCTOR_VERSION}.json"
    assert json.loads(published.read_text()) == json_schema(DoctorReport)


@pytest.mark.exam
def test_works_without_our_own_requirements() -> None:
    """Where pydantic, rich and platformdirs are missing, the rest is still told, as a table and as JSON."""
    code = (
        "import sys\n"
        "for name in ('pydantic', 'rich', 'platformdirs', 'yaml', 'filelock'): sys.modules[name] = None\n"
        "from pytest_cgins.doctor import examine, python, tools\n"
        "tools.probe = lambda *_, **__: (None, tools.ProgramResult(status=None, output='', trouble='not asked'))\n"
        "from pytest_cgins.app.cli import main\n"
        "sys.exit(main(['doctor', *sys.argv[1:]]))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "CGINS_CACHE_DIR"}
    for options in ([], ["--json"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *options],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert "the doctor failed here: ModuleNotFoundError" in done.stdout
        assert "C++ compiler" in done.stdout
