"""Schemas and audits over the action, its scripts and the workflows: what `make check` runs, and that it bites.

The tools are dependencies of the development environment: without them these tests fail, they do not skip.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.action.local_runner import ACTION, ROOT

BIN = Path(sys.executable).parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTION_SCHEMA = ["check-jsonschema", "--builtin-schema", "vendor.github-actions"]
WORKFLOW_SCHEMA = ["check-jsonschema", "--builtin-schema", "vendor.github-workflows"]
ZIZMOR = ["zizmor", "--offline", "--persona=auditor", "--strict-collection", "--no-progress"]


def run(command: list[str], *files: Path) -> subprocess.CompletedProcess[str]:
    words = [str(BIN / command[0]), *command[1:], *map(str, files)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def assert_clean(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.exam
def test_schemas_hold() -> None:
    """action.yml and the workflows fit GitHub's schemas, as vendored by check-jsonschema."""
    assert len(WORKFLOWS) == 9
    assert_clean(run(WORKFLOW_SCHEMA, *WORKFLOWS))
    assert_clean(run(ACTION_SCHEMA, ACTION / "action.yml"))


def test_audit_finds_nothing() -> None:
    """zizmor, offline and as an auditor, has no finding: no template injection, unpinned action or kept credential."""
    assert_clean(run(ZIZMOR, ACTION, *WORKFLOWS))


def test_actionlint_finds_nothing() -> None:
    """actionlint, with shellcheck on the `run:` texts, has nothing to say of the workflows."""
    path = f"{BIN}:{os.environ['PATH']}"
    words = [str(BIN / "actionlint"), *map(str, WORKFLOWS)]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, "PATH": path}
    )
    assert_clean(done)


def test_scripts_are_clean() -> None:
    """shellcheck has nothing to say of the scripts, nor of the `run:` texts that are more than one line."""
    scripts = sorted(ACTION.glob("*.sh"))
    assert scripts
    assert_clean(run(["shellcheck"], *scripts))


def test_make_check_runs_the_same() -> None:
    """`make check` names each tool that is tested here, and takes all workflows."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "WORKFLOWS := $(wildcard .github/workflows/*.yml)" in text
    for words in (
        "vendor.github-workflows",
        "vendor.github-actions action/action.yml",
        "zizmor --offline --quiet --persona=auditor",
        "actionlint",
        "shellcheck action/*.sh",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ('exec "$CGINS_PYTHON"', 'exec "${{ inputs.python }}"', "template-injection"),
        (
            "actions/cache/restore@27d5ce7f107fe9357f9df03efb73ab90386fccae",
            "actions/cache/restore@v5",
            "unpinned-uses",
        ),
    ],
)
def test_audit_bites(tmp_path: Path, old: str, new: str, finding: str) -> None:
    """With the fault in it, the same audit of the same action fails and names it."""
    text = (ACTION / "action.yml").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "action.yml").write_text(text.replace(old, new))
    done = run(ZIZMOR, tmp_path / "action.yml")
    assert done.returncode != 0
    assert finding in done.stdout


def test_schema_bites(tmp_path: Path) -> None:
    """A step without a shell is refused."""
    text = (ACTION / "action.yml").read_text(encoding="utf-8")
    (tmp_path / "action.yml").write_text(text.replace("      shell: bash\n", "", 1))
    assert run(ACTION_SCHEMA, tmp_path / "action.yml").returncode != 0
