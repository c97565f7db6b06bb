"""SECURITY.md against the tests and workflows that there are."""

from __future__ import annotations

import re
from pathlib import Path

from tables import functions, rows, sections

REPOSITORY = Path(__file__).parents[2]
TEXT = (REPOSITORY / ".github" / "SECURITY.md").read_text(encoding="utf-8")
CLAIMS = re.findall(
    r"(?m)^- (.+?): (`[\w/.:]+`(?:, `[\w/.:]+`)*)$", TEXT.partition("\n## Claims\n")[2].partition("\n## ")[0]
)
"""Each claim and its tests."""
WORKFLOWS = {file.name for file in (REPOSITORY / ".github" / "workflows").glob("*.yml")}


def test_every_claim_has_tests_that_exist() -> None:
    """Each claim names a test, or a file of tests, and each that is named is there."""
    assert len(CLAIMS) == len(re.findall(r"(?m)^- [^*]", TEXT)) > 60
    for claim, quoted in CLAIMS:
        for name in re.findall(r"`([^`]+)`", quoted):
            file, _, function = name.partition("::")
            tests = functions(REPOSITORY / "tests" / file)
            assert tests, f"{claim}: {file}"
            assert not function or function in tests, f"{claim}: {name}"


def test_no_claim_is_made_twice() -> None:
    """A claim has one line."""
    claims = [claim for claim, _ in CLAIMS]
    assert len(set(claims)) == len(claims)


def test_every_workflow_is_told() -> None:
    """Each workflow is in a row of who starts what, and none that is gone."""
    named = {
        name
        for row in rows(sections(TEXT)["Who runs what where"])
        for name in re.findall(r"`([\w-]+\.yml)`", row[1])
    }
    assert named == WORKFLOWS
