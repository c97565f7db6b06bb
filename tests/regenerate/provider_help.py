"""What tests of providers share: a place with a request, and asking until there is an outcome."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from pytest_cgins.core.errors import ProviderError
from pytest_cgins.regenerate.conversation import Answer, Message, Request
from pytest_cgins.regenerate.provider import courier, files
from pytest_cgins.regenerate.provider.base import Limits, Provider
from pytest_cgins.regenerate.provider.openai_compatible import OpenAICompatible

KEY = "sk-test-0123456789abcdefghij"
KEY_ENV = "CGINS_TEST_API_KEY"
QUICK = Limits(connect_s=2, idle_s=5, try_s=10, deadline_s=20, tries=4, pause_s=0.02, longest_pause_s=0.1)


def request(
    name: str = "softmax-cpu-cpp/attempt-01/generator",
    *,
    text: str = "Write a kernel.",
    model: str = "tiny-1",
    temperature: float | None = None,
) -> Request:
    messages = (Message(role="system", text="You write kernels."), Message(role="user", text=text))
    return Request(
        id=name, role="generator", model=model, messages=messages, max_tokens=500, temperature=temperature
    )


def place_of(run: Path, asked: Request) -> Path:
    place = run / asked.id
    place.mkdir(parents=True, exist_ok=True)
    files.write_json(place / files.REQUEST, asked)
    return place


def settled(provider: Provider, asked: Request, place: Path, limit_s: float = 30.0) -> Answer | ProviderError:
    """The answer, or the error that was raised."""
    ends = time.monotonic() + limit_s
    while time.monotonic() < ends:
        try:
            answer = provider.ask(asked, place)
        except ProviderError as error:
            return error
        if answer is not None:
            return answer
        provider.wait(1.0)
    raise AssertionError("neither an answer nor an error")


def outcome(
    base_url: str,
    run: Path,
    *,
    asked: Request | None = None,
    stream: bool = True,
    limits: Limits = QUICK,
    api_key_env: str = KEY_ENV,
    process: bool = False,
    **more: object,
) -> Answer | ProviderError:
    """What becomes of one request to a server; with `process` through the courier's, which takes a second to start."""
    asked = asked or request()
    provider = OpenAICompatible(
        base_url=base_url, api_key_env=api_key_env, limits=limits, stream=stream, **more
    )
    place = place_of(run, asked)
    try:
        if not process and not files.is_settled(place):
            courier.settle(provider._order_for(asked, place), threading.Event())
        return settled(provider, asked, place)
    except ProviderError as error:
        return error
    finally:
        provider.close()
