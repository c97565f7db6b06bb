"""Each thing that a server can do, streaming and not, met by what the courier does for an order."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.config.llm import Price
from pytest_cgins.core.errors import ProviderError
from pytest_cgins.regenerate.conversation import Answer, Finish
from pytest_cgins.regenerate.provider import files, openai_compatible
from pytest_cgins.regenerate.provider.openai_compatible import OpenAICompatible
from tests.regenerate.llm_server import LlmServer, Reply, Script
from tests.regenerate.provider_help import KEY, KEY_ENV, QUICK, outcome, place_of, request, settled

KERNEL = "Here it is:\n```cpp\nint main() { return 0; } // ü ✓ 𝄞\n```\n"
both = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Whatever a test does, the key is in no file that it leaves."""
    monkeypatch.setenv(KEY_ENV, KEY)
    yield
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert KEY.encode() not in file.read_bytes(), file


def _answer(found: Answer | ProviderError) -> Answer:
    assert isinstance(found, Answer), str(found)
    return found


def _error(found: Answer | ProviderError) -> ProviderError:
    assert isinstance(found, ProviderError), found
    assert KEY not in str(found)
    return found


def answered(tmp_path: Path, script: Script, **more: Any) -> tuple[Answer, LlmServer]:
    """The answer that a server with a script gives, and the server."""
    with LlmServer(script) as server:
        return _answer(outcome(server.base_url, tmp_path, **more)), server


def failed(tmp_path: Path, script: Script, **more: Any) -> tuple[ProviderError, LlmServer]:
    """The error that a server with a script leads to, and the server."""
    with LlmServer(script) as server:
        return _error(outcome(server.base_url, tmp_path, **more)), server


@pytest.mark.exam
@both
def test_an_answer_arrives_whole(tmp_path: Path, stream: bool) -> None:
    """Text, model, and usage are the server's; the request is what was asked, with the key in its header only."""
    answer, server = answered(
        tmp_path, [Reply(text=KERNEL)], stream=stream, asked=request(temperature=0.5), process=True
    )
    sent = server.requests[0]
    assert (answer.text, answer.finish, answer.model, answer.tries) == (KERNEL, "stop", "tiny-1", 1)
    assert (answer.usage.prompt_tokens, answer.usage.answer_tokens) == (100, 20)
    assert not answer.usage.estimated
    assert answer.usage.usd is None
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert sent.json["messages"][0] == {"role": "system", "content": "You write kernels."}
    assert (sent.json["max_tokens"], sent.json["temperature"], sent.json["stream"]) == (500, 0.5, stream)
    assert KEY not in json.dumps(sent.json)


@both
@pytest.mark.parametrize(
    ("reply", "finish", "text"),
    [
        (Reply(text="half of it", finish="length"), "length", "half of it"),
        (Reply(text="", finish="length"), "length", ""),
        (Reply(text="", finish="content_filter"), "filtered", ""),
        (Reply.refusing("I would rather not."), "refusal", "I would rather not."),
        (Reply.calling("save", '{"a": 1}'), "tool-calls", 'save{"a": 1}'),
        (Reply(text=""), "empty", ""),
        (Reply(text="  \n"), "empty", "  \n"),
        (Reply(text="x", finish="eos"), "stop", "x"),
    ],
)
def test_why_an_answer_ended(tmp_path: Path, stream: bool, reply: Reply, finish: Finish, text: str) -> None:
    """The server's word for the end becomes one of ours; what was said instead is kept."""
    answer, _ = answered(tmp_path, [reply], stream=stream)
    assert (answer.finish, answer.text) == (finish, text)


@both
def test_a_large_answer(tmp_path: Path, stream: bool) -> None:
    """An answer of 1 MB arrives as it was sent."""
    text = "0123456789abcde\n" * 2**16
    asked = replace(request(), max_tokens=2**18)
    assert answered(tmp_path, [Reply(text=text)], stream=stream, asked=asked)[0].text == text


@both
def test_a_monstrous_answer(tmp_path: Path, stream: bool) -> None:
    """An answer beyond 4 MiB is a final error, and is not asked for again."""
    asked = replace(request(), max_tokens=2**20)
    error, server = failed(tmp_path, [Reply(text="x" * (2**22 + 2**16))], stream=stream, asked=asked)
    assert len(server.asked) == 1
    assert "larger than 4194304 bytes" in str(error)
    assert "max_tokens" in error.remedy


@both
def test_another_model_answers(tmp_path: Path, stream: bool) -> None:
    """Who answered is told, not who was asked."""
    assert answered(tmp_path, [Reply(text="x", model="other-2")], stream=stream)[0].model == "other-2"


@both
def test_no_usage(tmp_path: Path, stream: bool) -> None:
    """Where the server tells no tokens, four characters are one."""
    usage = answered(tmp_path, [Reply(text="x" * 41, usage=None)], stream=stream)[0].usage
    assert (usage.prompt_tokens, usage.answer_tokens, usage.estimated) == (5 + 4, 11, True)


def test_cost_by_the_price_of_the_model(tmp_path: Path) -> None:
    """Cached tokens, those of hidden thought, and what an answer cost by the user's table."""
    told = {
        "prompt_tokens": 1_000_000,
        "completion_tokens": 100_000,
        "total_tokens": 1_500_000,
        "prompt_tokens_details": {"cached_tokens": 400_000},
    }
    price = Price(
        input_usd_per_million_tokens=2.0,
        output_usd_per_million_tokens=8.0,
        cached_input_usd_per_million_tokens=0.5,
    )
    usage = answered(tmp_path, [Reply(text="x", usage=told)], prices={"tiny-1": price})[0].usage
    assert (usage.cached_tokens, usage.answer_tokens) == (400_000, 500_000)
    assert usage.usd == pytest.approx(0.6 * 2 + 0.4 * 0.5 + 0.5 * 8)


@pytest.mark.exam
@both
def test_a_limit_of_the_provider(tmp_path: Path, stream: bool) -> None:
    """After 429 it is asked again when Retry-After has passed, in seconds or as a date, and no sooner."""
    started = time.time()
    date = formatdate(int(started) + 2, usegmt=True)
    answer, _ = answered(
        tmp_path, [Reply.limited("0.3"), Reply.limited(date), Reply.limited(), Reply(text="x")], stream=stream
    )
    assert answer.tries == 4
    assert time.time() >= int(started) + 2
    assert not answer.usage.estimated
    lines = (tmp_path / request().id / files.TRIES).read_text().splitlines()
    assert len(lines) == 3
    assert "try 1: 429 slow down; again in 0.3 s" in lines[0]


def test_a_limit_beyond_the_deadline(tmp_path: Path) -> None:
    """A server that wants more time than there is ends the request at once, for a later run."""
    error, _ = failed(tmp_path, [Reply.limited("3600")])
    assert "429 slow down; it wants to be left alone for 3600 s (no time for another try within 20 s)" in str(
        error
    )
    assert error.retry


def test_no_credit(tmp_path: Path) -> None:
    """429 for want of money is final: no pause helps."""
    reply = Reply(status=429, error={"message": "You exceeded your quota", "code": "insufficient_quota"})
    error, _ = failed(tmp_path, [reply])
    assert "no credit left" in error.remedy
    assert not error.retry


@both
def test_a_server_that_breaks(tmp_path: Path, stream: bool) -> None:
    """500, 502 and 503 are tried again."""
    script = [Reply.failing(500), Reply.page(502), Reply.failing(503), Reply(text="x")]
    assert answered(tmp_path, script, stream=stream)[0].tries == 4


def test_a_server_that_stays_broken(tmp_path: Path) -> None:
    """After N tries it is over; the error says what the server said last, and a later ask loads it and asks nobody."""
    with LlmServer(lambda _: Reply.failing(500, "out of cheese")) as server:
        error = _error(outcome(server.base_url, tmp_path))
        assert len(server.asked) == 4
        again = _error(outcome(server.base_url, tmp_path))
        assert len(server.asked) == 4
    assert f'{server.base_url} was asked for "tiny-1": 500 out of cheese (after 4 tries)' in str(error)
    assert "resume the run later" in error.remedy
    assert (str(again), again.retry) == (str(error), True)


@both
def test_a_connection_that_breaks(tmp_path: Path, stream: bool) -> None:
    """An answer that breaks off is asked for again; what it took so far is counted, by estimate."""
    answer, _ = answered(tmp_path, [Reply(text="x" * 400, reset=True), Reply(text="whole")], stream=stream)
    assert (answer.text, answer.tries) == ("whole", 2)
    assert answer.usage.estimated
    assert answer.usage.prompt_tokens == 100 + 9
    assert answer.usage.answer_tokens > 20 if stream else answer.usage.answer_tokens == 20


@both
def test_an_answer_that_is_cut(tmp_path: Path, stream: bool) -> None:
    """Truncated JSON, and a stream that ends too early, are tried again."""
    answer, _ = answered(tmp_path, [Reply(text="x" * 400, cut=True), Reply(text="whole")], stream=stream)
    assert (answer.text, answer.tries) == ("whole", 2)


@both
@pytest.mark.parametrize(
    "body", [b"garbage", b"[1, 2]", b'{"id": 1}', b"null", b"[" * 100_000, b"\xff\xfe", b'{"choices": 3}']
)
def test_garbage(tmp_path: Path, stream: bool, body: bytes) -> None:
    """A body that is no completion is tried again, and told if it stays so."""
    limits = replace(QUICK, tries=2)
    error, server = failed(tmp_path, lambda _: Reply(body=body), stream=stream, limits=limits)
    assert len(server.asked) == 2
    assert "the answer" in str(error)
    assert len(str(error)) < 800


@both
def test_a_web_page(tmp_path: Path, stream: bool) -> None:
    """A web page with status 200 means that the address is wrong: final, with its words and the remedy."""
    error, _ = failed(tmp_path, [Reply.page()], stream=stream)
    assert "a web page in place of an answer: Welcome to the portal" in str(error)
    assert "/v1 at its end" in error.remedy


@both
def test_an_error_with_status_200(tmp_path: Path, stream: bool) -> None:
    """An error object in place of an answer is an error: tried again if it is one that passes, else final."""
    script = [
        Reply(error={"message": "upstream is down", "code": 502}),
        Reply(error={"message": "later", "type": "overloaded_error"}),
        Reply(error={"message": "no such thing", "code": 400}),
    ]
    error, server = failed(tmp_path, script, stream=stream)
    assert len(server.asked) == 3
    assert "an error in place of an answer: no such thing" in str(error)
    assert not error.retry


@both
def test_a_server_that_hangs(tmp_path: Path, stream: bool) -> None:
    """Silence is not waited for longer than allowed; then it is asked again."""
    limits = replace(QUICK, idle_s=0.3, try_s=0.4)
    answer, _ = answered(
        tmp_path,
        [Reply.hanging(), Reply(text="x", stall_s=600), Reply(text="whole")],
        stream=stream,
        limits=limits,
    )
    assert (answer.text, answer.tries, answer.usage.estimated) == ("whole", 3, True)


def test_a_server_that_only_says_that_it_is_alive(tmp_path: Path) -> None:
    """Comments in a stream do not keep a try alive beyond its limit."""
    drip = (": still here\n\n" * 200).encode()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        connection.recv(2**16)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        try:
            for start in range(0, len(drip), 14):
                connection.sendall(drip[start : start + 14])
                time.sleep(0.05)
        except OSError:
            pass

    threading.Thread(target=serve, daemon=True).start()
    limits = replace(QUICK, try_s=0.4, tries=1)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    error = _error(outcome(url, tmp_path, limits=limits))
    listener.close()
    assert "did not end in time" in str(error)


def test_nobody_there(tmp_path: Path) -> None:
    """A port without a server is told as such."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    error = _error(outcome(f"http://127.0.0.1:{port}/v1", tmp_path, limits=replace(QUICK, tries=2)))
    assert "no connection: [Errno 111] Connection refused (after 2 tries)" in str(error)


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_refused(tmp_path: Path, status: int) -> None:
    """Which variable to set is told; a key that the server echoes is in neither message nor file."""
    error, server = failed(tmp_path, [Reply(status=status, error={"message": "Bad key"}, echo_key=True)])
    assert len(server.asked) == 1
    assert f"{status} Bad key: [key]" in str(error)
    assert error.remedy == f"set the environment variable {KEY_ENV} to a key that is valid there"


@pytest.mark.exam
def test_a_key_in_an_answer_and_in_what_is_retried(tmp_path: Path) -> None:
    """Neither what a model says nor what a server says before it recovers brings the key into a file."""
    echo = Reply(status=500, error={"message": "Broken"}, echo_key=True)
    answer, _ = answered(tmp_path, [echo, Reply(text=f"you are {KEY}", model=KEY)], process=True)
    assert answer.text == "you are [key]"


def test_a_key_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the key nobody is asked, and nothing final is written: set it, and the run goes on."""
    monkeypatch.delenv(KEY_ENV)
    with LlmServer([Reply(text="x")]) as server:
        error = _error(outcome(server.base_url, tmp_path))
        assert f"{KEY_ENV} is not set" in str(error)
        assert server.asked == []
        monkeypatch.setenv(KEY_ENV, KEY)
        assert _answer(outcome(server.base_url, tmp_path)).text == "x"


@pytest.mark.exam
def test_a_server_without_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither OpenAI's key nor anything else of OpenAI's reaches another server."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_ORG_ID", "org-mine")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Mine: secret")
    with LlmServer([Reply(text="x")]) as server:
        _answer(outcome(server.base_url, tmp_path, api_key_env="", process=True))
        headers = server.requests[0].headers
    assert headers["authorization"] == "Bearer none"
    assert KEY not in str(headers)
    assert "mine" not in str(headers)


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    """404 names the models that the server has, the most similar first."""
    reply = Reply.failing(404, "model not found")
    with LlmServer([reply], models=["big-9", "tiny-2x"]) as server:
        error = _error(outcome(server.base_url, tmp_path, asked=request(model="tiny-2")))
    assert 'did you mean "tiny-2x"? the server has: big-9, tiny-2x' in error.remedy
    with LlmServer([reply], lists_models=False) as server:
        error = _error(outcome(server.base_url, tmp_path / "b"))
    assert "it must be the API's, as a rule with /v1 at its end" in error.remedy


def test_a_request_that_is_refused(tmp_path: Path) -> None:
    """400 is final, with the server's words."""
    error, server = failed(
        tmp_path, [Reply.failing(400, "This model's maximum context length is 8192 tokens.")]
    )
    assert len(server.asked) == 1
    assert "400 This model's maximum context length is 8192 tokens." in str(error)
    assert not error.retry


def test_what_a_server_does_not_take_is_left_out(tmp_path: Path) -> None:
    """Streaming, the name of the token limit, and a temperature are given up one by one where they are refused."""

    def script(asked: dict[str, object]) -> Reply:
        for name in ("stream_options", "max_tokens", "temperature"):
            if name in asked:
                return Reply.failing(400, f"Unsupported parameter: '{name}'")
        if asked["stream"]:
            return Reply.failing(422, "cannot stream")
        return Reply(text="x")

    answer, server = answered(
        tmp_path, script, asked=request(temperature=0.2), limits=replace(QUICK, tries=1)
    )
    last = server.asked[-1]
    assert answer.text == "x"
    assert last["max_completion_tokens"] == 500
    assert not {"temperature", "max_tokens", "stream_options"} & last.keys()


def test_a_limit_of_tokens_that_is_refused_under_both_names(tmp_path: Path) -> None:
    """A server that refuses both names of the limit is not asked for ever."""
    with LlmServer(
        lambda _: Reply.failing(400, "max_tokens and max_completion_tokens are too large")
    ) as server:
        error = _error(outcome(server.base_url, tmp_path))
        assert len(server.asked) == 2
    assert "too large" in str(error)


def test_a_server_that_does_not_stream_after_all(tmp_path: Path) -> None:
    """A whole answer is taken where a stream was asked for."""
    assert answered(tmp_path, [Reply(text="x", no_stream=True)])[0].text == "x"


@pytest.mark.exam
def test_many_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several requests are under way at a time, each with its own answer; no more than allowed."""
    monkeypatch.setattr(openai_compatible, "MOST_AT_ONCE", 4)
    asked = [request(f"k{n}-cpu-cpp/attempt-01/generator", text=f"number {n}") for n in range(6)]

    def script(data: dict[str, list[dict[str, str]]]) -> Reply:
        return Reply(text=data["messages"][1]["content"], hang_s=0.2)

    with LlmServer(script) as server:
        provider = OpenAICompatible(base_url=server.base_url, api_key_env=KEY_ENV, limits=QUICK)
        places = [place_of(tmp_path, one) for one in asked]
        for one, place in zip(asked, places, strict=True):
            assert provider.ask(one, place) is None
        server.wait_for(4)
        time.sleep(0.1)
        assert len(server.asked) == 4
        for one, place in zip(asked, places, strict=True):
            assert _answer(settled(provider, one, place)).text == one.messages[1].text
        provider.close()
        assert len(server.asked) == 6


def test_an_answer_is_never_asked_for_twice(tmp_path: Path) -> None:
    """A place with an answer gives it without a key, a server or a process."""
    first, _ = answered(tmp_path, [Reply(text="x")])
    os.environ.pop(KEY_ENV)
    assert _answer(outcome("http://127.0.0.1:1/v1", tmp_path)) == first


# ---- redirects


@both
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_takes_nothing_along(tmp_path: Path, stream: bool, status: int) -> None:
    """Neither prompt nor key goes where a server sends requests on to; the address that is told is the one to set."""
    with LlmServer([Reply(text="x")]) as there:
        location = f"{there.base_url}/chat/completions"
        moved = Reply(status=status, headers={"Location": location}, body=b"")
        with LlmServer([moved]) as server:
            error = _error(outcome(server.base_url, tmp_path, stream=stream))
            assert len(server.asked) == 1
        assert there.requests == []
        assert f"{status}: it sends requests on to {location}, where nothing was sent" in str(error)
        assert not error.retry
        said, url = error.remedy.rsplit(" ", 1)
        assert said == "if prompts and the key may go there, set llm.base_url to"
        assert _answer(outcome(url, tmp_path / "again", stream=stream)).text == "x"


@pytest.mark.parametrize(
    "location",
    [
        "",
        "https://login.example/?next=%2Fv1",
        "//login.example",
        "/login",
        "completions",
        "http://[",
        "\t\x7f",
    ],
)
def test_a_redirect_to_what_is_no_server_of_models(tmp_path: Path, location: str) -> None:
    """A login page, nonsense, or the address itself: what is wrong with the address that is set is to be looked for."""
    error, server = failed(tmp_path, [Reply(status=302, headers={"Location": location}, body=b"")])
    assert len(server.asked) == 1
    assert "302: it sends requests on to" in str(error)
    assert error.remedy == "check base_url: a login page or a proxy may be in between"


def test_the_list_of_models_is_not_fetched_elsewhere(tmp_path: Path) -> None:
    """The look at a server's models, after a model that it does not know, takes the key nowhere else either."""
    with LlmServer() as there, LlmServer([Reply.failing(404, "no such model")]) as server:
        server.moved_to = f"{there.base_url}/models"
        error = _error(outcome(server.base_url, tmp_path))
        assert there.requests == []
    assert "it must be the API's" in error.remedy


# ---- what is booked


@pytest.mark.parametrize("field", ["text", "thought"])
def test_a_stream_beyond_the_most_tokens_is_ended(tmp_path: Path, field: str) -> None:
    """Of a server that does not heed max_tokens no more is read, paid or booked than can be in them."""
    asked = replace(request(), max_tokens=5000)
    answer, _ = answered(tmp_path, [Reply(**{field: "word " * 200_000})], asked=asked)
    assert answer.finish == "length"
    assert 2 * 5000 <= answer.usage.answer_tokens <= 2 * 5000 + 2**14 // 4
    assert answer.usage.estimated


def test_a_stream_beyond_the_most_tokens_by_the_servers_count(tmp_path: Path) -> None:
    """Where each piece has a count, that is heeded, and booked."""
    told = {"prompt_tokens": 100, "completion_tokens": 501, "total_tokens": 601}
    answer, _ = answered(tmp_path, [Reply(text="word " * 100, usage=told, counts=True)])
    assert (answer.finish, answer.usage.answer_tokens, answer.usage.estimated) == ("length", 501, False)


def test_an_answer_that_breaks_off_at_the_same_place(tmp_path: Path) -> None:
    """As by a context that overflows: it is asked once more and not six times, and what is booked is told."""
    limits = replace(QUICK, tries=6)
    error, server = failed(tmp_path, lambda _: Reply(text="x" * 400, cut=True), limits=limits)
    assert len(server.asked) == 2
    assert "the stream ended before the answer did (twice after 160 characters)" in str(error)
    assert "98 tokens are booked for it, in part by estimate" in str(error)
    assert "lower llm.max_answer_tokens" in error.remedy
    took = files.taken_in(tmp_path / request().id)
    assert took is not None
    assert (took.prompt_tokens, took.answer_tokens, took.estimated) == (2 * 9, 2 * 40, True)


def test_what_the_server_counted_of_a_broken_stream(tmp_path: Path) -> None:
    """The server's own count comes before an estimate."""
    told = {"prompt_tokens": 3000, "completion_tokens": 77}
    error, _ = failed(tmp_path, lambda _: Reply(text="x" * 400, cut=True, usage=told, counts=True))
    assert "6,154 tokens are booked for it, as the server counted" in str(error)


@pytest.mark.parametrize("words", ["Context size has been exceeded.", "maximum context length is 8192 tokens",
                                   "prompt is too long: 9000 tokens > 8192", "Input is too large for the model"])  # fmt: skip
@pytest.mark.parametrize("text", ["", "x" * 400])
def test_a_context_that_overflows(tmp_path: Path, words: str, text: str) -> None:
    """Said in a stream, or as a status, 5xx too: it is final, with its remedy, and what came is booked, else nothing."""
    streamed = Reply(text=text, error={"message": words, "code": 500, "type": "server_error"})
    for number, reply in enumerate((streamed, Reply.failing(500, words))):
        with LlmServer(lambda _, reply=reply: reply) as server:
            error = _error(outcome(server.base_url, tmp_path / str(number)))
            assert len(server.asked) == 1
        assert error.remedy.startswith("give the model a longer context")
        took = files.taken_in(tmp_path / str(number) / request().id)
        booked = (took.prompt_tokens, took.answer_tokens) if took else None
        assert booked == ((9, 100) if text and reply is streamed else None)


def test_tries_that_may_be_billed_are_few(tmp_path: Path) -> None:
    """A server that falls silent after it was asked is asked three times, whatever else is tried more often."""
    limits = replace(QUICK, tries=6, idle_s=0.2, try_s=0.3)
    error, server = failed(tmp_path, lambda _: Reply.hanging(), limits=limits)
    assert len(server.asked) == 3
    assert (
        "(after 3 tries, of which 3 may be billed); 27 tokens are booked for it, in part by estimate"
        in str(error)
    )
