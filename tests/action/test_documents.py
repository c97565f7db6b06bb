"""What the action's documents say, held against action.yml and the workflows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.action import events
from tests.action.github_parsers import Parsers, State
from tests.action.local_runner import ACTION, ROOT, document
from tests.action.test_audit import WORKFLOW_SCHEMA, WORKFLOWS, assert_clean, run

README = (ACTION / "README.md").read_text(encoding="utf-8")
FILES = [*WORKFLOWS, ACTION / "action.yml"]
OWN = {"./action", "./.cgins-action/action"}
"""The action as it is checked out: here, and by the commit of a reusable workflow."""
USES = re.compile(r"uses: +([^@\s]+)(?:@(\S+))?(?: # (\S+))?")


def section(title: str) -> str:
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """Cells of the markdown tables in a text, without head and rule."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_input_is_listed() -> None:
    """The table names each input of action.yml once, and no other."""
    listed = [name for _, names in rows(section("Inputs")) for name in re.findall(r"`([\w-]+)`", names)]
    assert sorted(listed) == sorted(document()["inputs"])


def test_every_output_is_listed() -> None:
    """The README names each output of action.yml, in order, and no other; action.yml describes each."""
    assert re.findall(r"`([\w-]+)`", section("Outputs")) == list(document()["outputs"])
    assert all(entry["description"].strip() for entry in document()["outputs"].values())


def test_every_input_has_a_default_of_type_string_and_is_used() -> None:
    """No input is required, none would be read as another type, and none is without effect."""
    text = (ACTION / "action.yml").read_text(encoding="utf-8")
    for name, entry in document()["inputs"].items():
        assert isinstance(entry["default"], str)
        assert entry["description"]
        assert re.search(rf"inputs\.{name}\b(?!-)", text), name


def test_no_expression_in_any_script() -> None:
    """No `run:` text has `${{` in it, in the action and in the workflows."""
    steps: list[dict[str, Any]] = list(document()["runs"]["steps"])
    for file in WORKFLOWS:
        for job in yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"].values():
            steps += job["steps"]
    scripts = [step["run"] for step in steps if "run" in step]
    assert len(scripts) > 8
    assert [script for script in scripts if "${{" in script] == []


def examples() -> list[dict[str, Any]]:
    return [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)]


@pytest.mark.exam
def test_examples_fit_the_schema_and_name_real_inputs(tmp_path: Path) -> None:
    """The workflows in the README are valid, ask for no more than reading, and use inputs and outputs that exist."""
    assert len(examples()) == 2
    for number, example in enumerate(examples()):
        file = tmp_path / f"{number}.yml"
        # YAML 1.1 reads the key `on` as true.
        file.write_text(
            yaml.safe_dump({"on" if key is True else key: value for key, value in example.items()})
        )
        assert_clean(run(WORKFLOW_SCHEMA, file))
        assert example["permissions"] == {"contents": "read"}
        (job,) = example["jobs"].values()
        (gate,) = (step for step in job["steps"] if "pytest-cgins" in step.get("uses", ""))
        assert gate["with"].keys() <= document()["inputs"].keys()
        for output in re.findall(r"steps\.gate\.outputs\.([\w-]+)", str(job)):
            assert output in document()["outputs"]


def test_example_leaves_forks_out_and_compares_pushes(parsers: Parsers) -> None:
    """By GitHub's own reading, the example for a team's machine skips forks and compares a push with what was before."""
    text = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)[0]
    (job,) = parsers.parse("workflow", "example.yml", text)["jobs"].values()
    (gate,) = (step for step in job["steps"] if "pytest-cgins" in step.get("uses", ""))
    found = {}
    for name in events.NAMES:
        event = events.event(name)
        event.payload.setdefault("before", "5e" * 20)  # as pull requests have it that were pushed to
        seen = State({"github": event.context()})
        found[name] = (parsers.holds(job, seen), parsers.text(gate["with"]["baseline"], seen))
    before = events.event("push").payload["before"]
    assert found == {name: (name != "fork", before if name == "push" else "") for name in events.NAMES}


@pytest.mark.parametrize(
    "file", [ACTION / "README.md", ACTION / "WORKFLOWS.md", ROOT / ".github/SECURITY.md"]
)
def test_documents_say_that_forks_bring_their_own_conditions(file: Path) -> None:
    """Each that has something on forks names the setting that keeps them off machines of one's own."""
    text = " ".join(file.read_text(encoding="utf-8").split())
    assert "*Require approval for all external contributors*" in text
    assert "never reach" not in text


def pins() -> dict[str, tuple[str, str]]:
    """Action → (version, commit) in PINS.md."""
    table = rows((ACTION / "PINS.md").read_text(encoding="utf-8"))
    return {cells[0]: (cells[1], cells[2]) for cells in table}


@pytest.mark.parametrize("file", [*FILES, ACTION / "README.md"], ids=lambda file: str(file.relative_to(ROOT)))
def test_every_use_is_a_pin_of_the_table(file: Path) -> None:
    """Each `uses:` is ours, or names the 40 digits and the version that PINS.md has for it."""
    found = USES.findall(file.read_text(encoding="utf-8"))
    assert found
    for name, commit, version in found:
        if name in OWN or (name, commit) == ("OWNER/pytest-cgins/action", "COMMIT"):
            continue
        assert re.fullmatch("[0-9a-f]{40}", commit)
        assert pins()["/".join(name.split("/")[:2])] == (version, commit)


def test_every_pin_is_used() -> None:
    """PINS.md has no line that no `uses:` has."""
    text = "".join(file.read_text(encoding="utf-8") for file in FILES)
    used = {"/".join(name.split("/")[:2]) for name, _, _ in USES.findall(text) if name not in OWN}
    assert used == pins().keys()
