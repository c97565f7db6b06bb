"""SECURITY.md against the tests and workflows that there are."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tables import rows, sections

REPOSITORY = Path(__file__).parents[2]
TEXT = (REPOSITORY / ".github" / "SECURITY.md").read_text(encoding="utf-8")
CLAIMS = list(rows(sections(TEXT)["Claims"]))
WORKFLOWS = {file.name for file in (REPOSITORY / ".github" / "workflows").glob("*.yml")}


def test_every_claim_has_tests_that_exist() -> None:
    """Each claim names a test, or a file of tests, and each that is named is there."""
    assert len(CLAIMS) > 30
    for claim, tests in CLAIMS:
        named = re.findall(r"`([^`]+)`", tests)
        assert named, claim
        for name in named:
            file, _, function = name.partition("::")
            found = _functions(REPOSITORY / "tests" / file)
            assert found, f"{claim}: {file}"
            assert not function or function in found, f"{claim}: {name}"


def test_no_claim_is_made_twice() -> None:
    """A claim has one row."""
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


@cache
def _functions(file: Path) -> frozenset[str]:
    if not file.is_file():
        return frozenset()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test")
    )
