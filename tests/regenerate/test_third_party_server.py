"""A server that others wrote, with a model of random weights: what it says is garbage, and an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cgins.errors import ProviderError
from pytest_cgins.regenerate.model import Answer
from tests.regenerate.provider_help import outcome, request
from tests.regenerate.tiny_server import Serving

pytestmark = pytest.mark.slow


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
