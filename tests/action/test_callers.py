"""The workflows in WORKFLOWS.md: GitHub's parser and schema take them, and they fit what they call."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.action.github_parsers import Parsers
from tests.action.local_runner import ACTION, ROOT
from tests.action.test_audit import WORKFLOW_SCHEMA, assert_clean, run

TEXT = (ACTION / "WORKFLOWS.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
CALLED = re.compile(r"OWNER/pytest-cgins/\.github/workflows/([\w-]+\.yml)@COMMIT")


@pytest.mark.parametrize("text", EXAMPLES, ids=lambda text: text.splitlines()[0])
def test_example_fits_what_it_calls(parsers: Parsers, tmp_path: Path, text: str) -> None:
    """Inputs and secrets exist and are complete, and permissions are those that the called jobs have in all."""
    (tmp_path / "caller.yml").write_text(text)
    assert_clean(run(WORKFLOW_SCHEMA, tmp_path / "caller.yml"))
    tree = parsers.parse("workflow", "caller.yml", text)
    assert tree["permissions"] == {}
    for job in tree["jobs"].values():
        called = CALLED.fullmatch(job["uses"])
        assert called
        callee = yaml.safe_load((ROOT / ".github/workflows" / called[1]).read_text(encoding="utf-8"))
        call = callee[True]["workflow_call"]
        inputs, secrets = call.get("inputs", {}), call.get("secrets", {})
        assert job.get("with", {}).keys() <= inputs.keys()
        assert job.get("secrets", {}).keys() <= secrets.keys()
        required = {name for name, one in (inputs | secrets).items() if one.get("required")}
        assert required <= job.get("with", {}).keys() | job.get("secrets", {}).keys()
        needed: dict[str, str] = {}
        for one in callee["jobs"].values():
            for name, right in one["permissions"].items():
                needed[name] = max(needed.get(name, ""), right)  # "write" comes after "read"
        assert job["permissions"] == needed


def test_every_reusable_workflow_has_an_example() -> None:
    """What can be called is called in an example."""
    reusable = {
        file.name
        for file in (ROOT / ".github/workflows").glob("*.yml")
        if "workflow_call:" in file.read_text(encoding="utf-8")
    }
    assert set(CALLED.findall("".join(EXAMPLES))) == reusable


def test_every_report_of_the_gate_has_a_comment_of_its_own() -> None:
    """The example that comments names each artifact of the one that gates, under another name each."""
    trees = [yaml.safe_load(text) for text in EXAMPLES]
    gates, comments = (
        [job for tree in trees for job in tree["jobs"].values() if f"/{name}.yml@" in job["uses"]]
        for name in ("gate", "comment")
    )
    artifacts = [job.get("with", {}).get("artifact-name") for job in gates]
    assert [job.get("with", {}).get("artifact-name") for job in comments] == artifacts
    names = [job.get("with", {}).get("name") for job in comments]
    assert len(set(names)) == len(set(artifacts)) == len(gates)
