"""SECURITY.md against the tests and workflows that there are."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tables import rows, sections

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
    for claim, tests in CLAIMS:
        for name in re.findall(r"`([^`]+)`", tests):
            file, _, function = name.partition("::")
            functions = _functions(REPOSITORY / "tests" / file)
            assert functions, f"{claim}: {file}"
            assert not function or function in functions, f"{claim}: {name}"


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
