"""What servers send, in all its dresses: answers, streams however they are cut, errors, and times to wait."""

from __future__ import annotations

import contextlib
import json
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.regenerate.provider import failures as troubles
from pytest_cgins.regenerate.provider import reply as replies
from pytest_cgins.regenerate.provider.failures import Trouble
from pytest_cgins.regenerate.provider.reply import Reply
from tests.regenerate.provider_help import KEY, request

NAMES = [
    "choices",
    "message",
    "delta",
    "content",
    "error",
    "usage",
    "text",
    "type",
    "model",
    "refusal",
    "tool_calls",
    "function",
    "name",
    "finish_reason",
    "prompt_tokens",
    "completion_tokens",
    "code",
    "detail",
]
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=20,
)


def _completion(message: dict[str, Any], **more: Any) -> bytes:
    return json.dumps(
        {"model": "m", "choices": [{"message": message, "finish_reason": "stop"}], **more}
    ).encode()


def test_content_in_parts() -> None:
    """Of an answer in parts the text is taken, hidden thought is not."""
    parts = [
        {"type": "thinking", "text": "hm"},
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
        3,
    ]
    assert replies.whole(_completion({"content": parts})).text == "ab"


def test_no_choice() -> None:
    """An answer without a choice is an empty one."""
    assert replies.whole(b'{"choices": [], "model": "m"}').finish == "empty"


def test_text_that_no_file_can_hold() -> None:
    """Half a surrogate pair becomes a question mark."""
    assert replies.whole(b'{"choices": [{"message": {"content": "a\\ud800b"}}]}').text == "a?b"


@pytest.mark.parametrize(
    "usage",
    [{"prompt_tokens": -1, "completion_tokens": 2}, {"prompt_tokens": 1.5, "completion_tokens": 2}, {}, None, 3,
     {"prompt_tokens": True, "completion_tokens": 2}, {"prompt_tokens": 10**30, "completion_tokens": 2}],
)  # fmt: skip
def test_usage_that_makes_no_sense(usage: object) -> None:
    """Tokens that cannot be are estimated instead."""
    assert replies.usage_of(replies.whole(_completion({"content": "x"}, usage=usage)), request()).estimated


def test_more_cached_than_there_is() -> None:
    """No more of the prompt is cached than it has."""
    told = {"prompt_tokens": 5, "completion_tokens": 2, "prompt_cache_hit_tokens": 9}
    usage = replies.usage_of(replies.whole(_completion({"content": "x"}, usage=told)), request())
    assert (usage.cached_tokens, usage.answer_tokens) == (5, 2)


@pytest.mark.exam
@given(
    st.lists(st.text(max_size=12).filter(lambda text: "\x00" not in text), max_size=8),
    st.lists(st.integers(1, 40), max_size=60),
    st.sampled_from(["\n", "\r\n"]),
)
def test_a_stream_in_any_pieces(words: list[str], sizes: list[int], end: str) -> None:
    """Wherever a stream is cut into pieces, it says the same; comments and other fields are passed over."""
    lines = [": comment", "event: message"]
    for word in words:
        lines += [
            f"data: {json.dumps({'choices': [{'delta': {'content': word}}]})}",
            "id: 3",
            "",
            ": ping",
            "",
        ]
    stream = end.join([*lines, "data:[DONE]", "", ""]).encode()
    pieces, start = [], 0
    for size in sizes:
        pieces.append(stream[start : start + size])
        start += size
    reply = Reply()
    replies.streamed([*pieces, stream[start:]], reply, 500)
    assert reply.text == "".join(words).encode(errors="replace").decode()


def test_the_last_event_without_its_end() -> None:
    """A stream that forgets its last empty line is whole nevertheless."""
    reply = Reply()
    replies.streamed([b'data: {"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]}'], reply, 9)
    assert (reply.text, reply.finish) == ("x", "stop")


@pytest.mark.exam
@given(ANY_JSON)
def test_any_json_is_an_answer_or_trouble(data: object) -> None:
    """Whatever JSON comes, it is read or is trouble that can be told."""
    body = json.dumps(data).encode()
    with contextlib.suppress(Trouble):
        found = replies.whole(body)
        replies.usage_of(found, request())
        assert isinstance(found.text, str)
        assert found.finish
    with contextlib.suppress(Trouble):
        replies.streamed([b"data: " + body + b"\n\n"], Reply(), 500)
    assert len(troubles.said_in(body.decode())) <= 300


@given(st.binary())
def test_any_bytes_are_trouble_or_nothing(data: bytes) -> None:
    """Noise ends in trouble, never in another exception."""
    with contextlib.suppress(Trouble):
        replies.whole(data)
    with contextlib.suppress(Trouble):
        replies.streamed([data], Reply(), 500)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": " 0.5 "}, 0.5),
        ({"retry-after": "9", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_when_to_come_back(headers: dict[str, str], seconds: float | None) -> None:
    """Seconds, milliseconds, or a date; nonsense is nothing."""
    assert troubles.retry_after_s(headers) == seconds


def test_a_date_to_come_back() -> None:
    """A date in the future is so far away."""
    date = format_datetime(datetime.now(timezone.utc) + timedelta(seconds=90), usegmt=True)
    found = troubles.retry_after_s({"retry-after": date})
    assert found is not None
    assert 85 < found <= 90


@given(st.text())
def test_any_time_to_come_back(text: str) -> None:
    """No header makes another exception."""
    found = troubles.retry_after_s({"retry-after": text})
    assert found is None or found >= 0


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"error": {"message": "No."}}', "No."),
        ('{"error": "No."}', "No."),
        ('[{"error": {"code": 400, "message": "No."}}]', "No."),
        ('{"detail": [{"loc": ["body"], "msg": "extra"}]}', "extra"),
        ('{"message": "a\\nb\\u001b[31m"}', "a b [31m"),
        ("<html><style>x</style><h1>502</h1> Bad <b>Gateway</b></html>", "502 Bad Gateway"),
        ("404 page not found\n", "404 page not found"),
        ("", ""),
    ],
)
def test_what_an_error_says(body: str, said: str) -> None:
    """The words for people are found wherever a provider has them, in one line that no terminal acts on."""
    assert troubles.said_in(body) == said


def test_a_wrong_key_at_gemini() -> None:
    """A wrong key that is told with 400 gets the remedy of a wrong key."""
    body = '[{"error": {"code": 400, "message": "API key not valid. Please pass a valid API key."}}]'
    trouble = troubles.of_status(400, {}, body, api_key_env="GOOGLE_API_KEY")
    assert trouble.remedy == "set the environment variable GOOGLE_API_KEY to a key that is valid there"
    assert "name the environment variable that has it" in troubles.key_remedy("")


@pytest.mark.parametrize(
    ("status", "retry"),
    [(408, True), (409, True), (429, True), (500, True), (529, True), (501, False), (418, False)],
)
def test_which_status_is_tried_again(status: int, retry: bool) -> None:
    """What may pass is tried again, what will not is final."""
    assert troubles.of_status(status, {}, "", api_key_env="").retry is retry


def test_a_password_in_an_address() -> None:
    """It is not shown."""
    assert troubles.shown_url("http://me:secret@host:80/v1?key=x") == "http://host:80/v1"


def test_a_key_is_taken_out_of_texts() -> None:
    """A key is; a word like `none`, which answers may have as well, is not."""
    assert troubles.scrubbed(f"a {KEY} b", KEY) == "a [key] b"
    assert troubles.scrubbed("none of these", "none") == "none of these"
