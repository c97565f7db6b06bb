"""A server that others wrote, with a model of random weights: what it says is garbage, and an answer.

All that needs the server is in this file, so that one process of xdist's starts it, once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_cgins.core.errors import ProviderError
from pytest_cgins.regenerate.conversation import Answer
from pytest_cgins.regenerate.journal.journal import Journal
from tests.regenerate import scripted
from tests.regenerate.provider_help import outcome, request
from tests.regenerate.tiny_server import Serving, serving

pytestmark = pytest.mark.exam


@pytest.fixture(scope="module")
def third_party_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """`transformers serve` with a tiny model of random weights; has `base_url` and `model`, and wants no key."""
    for package in ("fastapi", "uvicorn", "accelerate", "transformers", "tokenizers"):
        pytest.importorskip(package)
    with serving(tmp_path_factory.mktemp("third-party")) as server:
        yield server


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_garbage_is_an_answer(tmp_path: Path, third_party_server: Serving, stream: bool) -> None:
    """Noise of the wanted length arrives, with the server's own count of tokens, and as text that can be kept."""
    asked = request(model=third_party_server.model)
    answer = outcome(
        third_party_server.base_url, tmp_path, asked=asked, stream=stream, api_key_env="", process=True
    )
    assert isinstance(answer, Answer), answer
    assert answer.text
    assert answer.finish in {"length", "stop"}
    assert answer.model.startswith(third_party_server.model)
    assert 0 < answer.usage.answer_tokens <= asked.max_tokens
    assert answer.usage.prompt_tokens > 30
    assert not answer.usage.estimated


def test_a_model_that_it_does_not_have(tmp_path: Path, third_party_server: Serving) -> None:
    """The provider gives up in order."""
    found = outcome(
        third_party_server.base_url,
        tmp_path,
        asked=request(model="tests/tinny"),
        api_key_env="",
        process=True,
    )
    assert isinstance(found, ProviderError)
    assert 'was asked for "tests/tinny"' in str(found)


def test_its_models_are_listed(third_party_server: Serving) -> None:
    """The list of models, from which remedies are taken, is what this server gives."""
    import openai

    with openai.OpenAI(base_url=third_party_server.base_url, api_key="none", max_retries=0) as client:
        assert [one.id for one in client.models.list().data] == [third_party_server.model]


LLM = """\
llm:
  provider: compatible
  base_url: URL
  model: MODEL
  max_answer_tokens: 256
  budget: {repair_attempts: 3}
"""


def test_a_whole_run_of_garbage(
    made_once: Callable[..., Path], tmp_path: Path, third_party_server: Serving
) -> None:
    """It ends in order: no valid kernel in so many attempts, exit code 1, and a journal that has it all."""
    project = scripted.project(
        made_once("scripted", scripted.recorded), tmp_path / "project", third_party_server.base_url
    )
    llm = LLM.replace("URL", third_party_server.base_url).replace("MODEL", third_party_server.model)
    (project / "cgins.yaml").write_text(scripted.YAML.partition("llm:")[0] + llm)
    log = tmp_path / "log"
    more = {"log": log, "env": {scripted.MARK: f"{os.getpid()}-{tmp_path.name}"}}
    assert scripted.begin(project, ["relu"], **more).wait(120.0) == 1, log.read_text()
    said = log.read_text()
    assert "relu-cpu-cpp: failed after 3 of 3 attempts" in said
    assert "no valid kernel in 3 attempts; the last: " in said
    assert "Traceback" not in said

    (run,) = (file.parent for file in project.glob(".cgins/runs/*/run.json"))
    journal = Journal.read_only(run)
    (target,) = journal.record.targets
    attempts = journal.attempts(target)
    assert {one.outcome for one in attempts} <= {"unusable", "refused", "build-error"}
    assert [one.number for one in attempts] == [1, 2, 3]
    answers = {request.id: answer for request, answer in journal.answered()}
    for number in (1, 2, 3):
        answer = answers[f"{target.name}/attempt-{number:02d}/generator"]
        assert answer.text
        assert answer.model.startswith(third_party_server.model)
        place = journal.folder_of(target, number) / "generator"
        assert (place / "prompt.md").read_text()
        assert (place / "answer.md").read_text() == answer.text
    result = json.loads((run / target.name / "result.json").read_text())
    assert result["state"] == "failed"
    assert not (run / "proposals").exists()
    has_source = any((journal.folder_of(target, number) / "source").exists() for number in (1, 2, 3))
    assert (run / target.name / "FAILED").exists() == has_source

    assert scripted.resume(project, **more).wait(60.0) == 1
    assert f"is done: cgins runs show {run.name}" in log.read_text()
