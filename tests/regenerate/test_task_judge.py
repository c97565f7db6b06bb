"""`cgins traces judge`: a model's opinion of tasks, asked once, and told."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_cgins.app import cli
from pytest_cgins.config.llm import LlmSettings, Models
from pytest_cgins.core.errors import BudgetError
from pytest_cgins.core.trace import Trace
from pytest_cgins.packs.store import read_manifest
from pytest_cgins.regenerate import provider, task_judge
from pytest_cgins.regenerate.run_setup import EXIT_WAITING
from pytest_cgins.regenerate.task_judge import Task
from tests.regenerate.answers import answer

EXAMPLE = Path(__file__).parents[2] / "example_project"
PACK = EXAMPLE / "traces" / "mnist"
OP = "models.blocks.conv_relu_pool"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example's functions, and a file that gates one of them."""
    shutil.copytree(EXAMPLE / "models", tmp_path / "models")
    (tmp_path / "cgins.yaml").write_text(
        f"version: 1\nkernels:\n  fused: {{op: {OP}, device: cpu, source: fused.cpp}}\n"
    )
    (tmp_path / "fused.cpp").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def task(op: str = OP) -> Task:
    traces: tuple[Trace, ...] = tuple(one for one in read_manifest(PACK).traces if one.call.op == op)
    return Task(pack="mnist", op=op, traces=traces, root=EXAMPLE)


def settings(folder: Path) -> LlmSettings:
    return LlmSettings(
        provider="replay", path=folder, models=Models(generator=("g",), verifier=("v",)), runs=folder
    )


def recorded(folder: Path, text: str, op: str = OP) -> None:
    file = folder / f"{task(op).id}.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_a_prompt_has_the_source_and_the_calls(tmp_path: Path) -> None:
    """The verifier is asked, about what the project's function does and the forms it was met with; torch's has words."""
    asked = task_judge.request(task(), settings(tmp_path))
    text = asked.messages[1].text
    assert asked.model == "v"
    assert "def conv_relu_pool" in text
    assert "relu" in text
    assert "11x1x31x27" in text.replace(", ", "x").replace("[", "").replace("]", "")
    assert "redundant: yes or no" in text
    assert asked == task_judge.request(task(), settings(tmp_path))
    assert (
        "max(x, 0)"
        in task_judge.request(task("torch.nn.functional.relu"), settings(tmp_path)).messages[1].text
    )


@pytest.mark.parametrize(
    ("text", "redundant", "inefficient", "why"),
    [
        ("redundant: no\ninefficient: yes\nwhy: x is squared twice", False, True, "x is squared twice"),
        ("**Redundant:** Yes\n- why: the sum is 1\n", True, None, "the sum is 1"),
        ("I cannot say.", None, None, ""),
        ("redundant: yesterday", None, None, ""),
    ],
)
def test_answers_are_read(text: str, redundant: bool | None, inefficient: bool | None, why: str) -> None:
    """In any dress; what is not said is unknown, and no is not assumed."""
    found = task_judge.read(task(), answer(text))
    assert (found.redundant, found.inefficient, found.why) == (redundant, inefficient, why)


def test_what_was_asked_is_not_asked_again(tmp_path: Path) -> None:
    """The answer stays, though the recording is gone; another model is asked anew."""
    recorded(tmp_path / "answers", "redundant: no\ninefficient: no\nwhy: each term counts")
    said = settings(tmp_path / "answers")
    first = task_judge.judged([task()], said, provider.of_settings(said), tmp_path / "kept")
    shutil.rmtree(tmp_path / "answers")
    assert task_judge.judged([task()], said, provider.of_settings(said), tmp_path / "kept") == first
    assert first[0] is not None
    assert first[0].redundant is False


def test_the_budget_holds(tmp_path: Path) -> None:
    """A prompt that does not fit into what may be taken is not sent."""
    said = settings(tmp_path)
    said = replace(said, budget=replace(said.budget, tokens=10))
    with pytest.raises(BudgetError, match=r"budget\.tokens"):
        task_judge.judged([task()], said, provider.of_settings(said), tmp_path / "kept")


def test_the_command_names_what_is_flagged_first(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table, the flagged ones first, with who says so; as JSON with the same words."""
    recorded(
        project / "answers", "redundant: no\ninefficient: yes\nwhy: the map is written before it is pooled"
    )
    recorded(project / "answers", "redundant: no\ninefficient: no\nwhy: one term", "torch.nn.functional.relu")
    words = ["traces", "judge", str(PACK), "--op", "relu", "--cgins-llm", "replay:answers"]
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    assert out.index("conv_relu_pool") < out.index("torch.nn.functional.relu")
    assert "the map is written before it is pooled" in out
    assert "2 tasks, 1 redundant or inefficient" in out
    assert cli.main([*words, "--json"]) == 0
    assert [one["inefficient"] for one in json.loads(capsys.readouterr().out)] == [True, False]


def test_answers_by_hand_are_awaited(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The prompt is written, the exit code says so, and the next run reads the answer."""
    words = ["traces", "judge", str(PACK), "--op", "conv_relu_pool", "--cgins-llm", "exchange:ask"]
    assert cli.main(words) == EXIT_WAITING
    prompt = project / "ask" / task().id / "prompt.md"
    assert str(prompt) in capsys.readouterr().err
    text = prompt.read_text()
    assert "conv_relu_pool" in text
    assert "cgins traces judge" in text
    assert "cgins runs resume" not in text, "there is no run, and the newest one is another"
    (prompt.with_name("answer.md")).write_text("redundant: yes\ninefficient: no\nwhy: no reason\n")
    assert cli.main(words) == 0
    assert "1 task, 1 redundant or inefficient" in capsys.readouterr().out
