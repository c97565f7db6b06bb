"""A real run in the formats that are made of its report, beside pytest's own document."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import junitparser
import xmlschema

from pytest_cgins.report import document, formats, junit

if TYPE_CHECKING:
    from .conftest import Run

SCHEMA = Path(__file__).parents[1] / "report" / "schema" / "junit-10.xsd"


def outcomes(document: junitparser.JUnitXml, name: str) -> dict[str, list[type]]:
    """What became of each case, by the part of its name that both documents have."""
    found = [case for suite in document for case in suite]
    return {
        (case.name if name == "pytest" else f"{case.classname.replace('.', '/', 1)}/{case.name}"): [
            type(result) for result in case.result
        ]
        for case in found
    }


def test_junit_says_what_pytests_own_says(full_run: Run) -> None:
    """The same cases fail, are errors and are skipped; ours is valid by the schema, and both are read by junitparser."""
    text = junit.render(document.load(full_run.folder / "report.json"))
    xmlschema.XMLSchema(SCHEMA).validate(text)
    ours = outcomes(junitparser.JUnitXml.fromstring(text.encode()), "cgins")
    pytests = outcomes(junitparser.JUnitXml.fromfile(str(full_run.folder / "junit.xml")), "pytest")
    assert ours == pytests
    assert len(ours) == 14
    assert len({tuple(kinds) for kinds in ours.values()}) > 2


def test_every_text_format_has_every_failure(full_run: Run) -> None:
    """Each failed case of a real run is named wherever it is told."""
    report = document.load(full_run.folder / "report.json")
    failed = [one for one in report.evaluations if one.verdict.status.outcome == "fail"]
    assert len(failed) > 3
    for name in ("terminal", "markdown", "comment", "pull-request", "json"):
        text = formats.FORMATS[name](report)
        assert all(one.case.signature in text and one.verdict.reason.value in text for one in failed), name
