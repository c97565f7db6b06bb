"""What can go wrong while a server is asked: whether to try again, when, and what a person can do."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urljoin, urlsplit

LIMIT_NBYTES = 2**22
"""Most characters of an answer, and bytes of a body that is not streamed."""

SHORTEST_KEY = 12
"""What is shorter is no secret but a word for servers without keys, which an answer may have as well."""

RETRIED = {408, 409, 425, 429}
"""Besides these, all from 500 on are tried again, but for those that say that it will never do."""

_NEVER = {501, 505}
_RETRIED_CODES = re.compile(
    r"rate.?limit|overloaded|unavailable|timeout|server.?error|try.?again", re.IGNORECASE
)
_QUOTA = re.compile(r"insufficient.?quota|billing|credit balance", re.IGNORECASE)
_CONTEXT = re.compile(
    r"context.?(length|size|window|limit|overflow)|(prompt|input|request)( is|s are)? too (long|large)",
    re.IGNORECASE,
)
_BAD_KEY = re.compile(r"api.?key", re.IGNORECASE)
CONTEXT_REMEDY = "give the model a longer context, or lower llm.max_answer_tokens; then resume the run"
"""Where a prompt and its answer do not fit."""


@dataclass(eq=False)
class Trouble(Exception):
    """A try that gave no answer."""

    what: str
    """What happened."""
    _: KW_ONLY
    remedy: str = ""
    """What to do where it is final."""
    retry: bool = False
    """Whether another try may do."""
    after_s: float | None = None
    """How long the server wants to be left alone."""
    lost: bool = False
    """Whether the model may have answered, and the provider may want money for it."""
    broke: bool = False
    """Whether the server ended an answer in its middle."""
    status: int = 0
    """Of the response, where it may be about a single parameter."""
    body: str = ""
    """Of that response."""


def too_large() -> Trouble:
    """An answer beyond the limit."""
    return Trouble(
        f"the answer is larger than {LIMIT_NBYTES} bytes",
        remedy="ask for fewer tokens: max_tokens",
        lost=True,
    )


def of_status(status: int, headers: Mapping[str, str], body: str, *, api_key_env: str) -> Trouble:
    """The trouble that a status other than 2xx tells of; 404 gets its remedy from who knows the models."""
    said = said_in(body)
    what = f"{status} {said}".rstrip()
    if status == 429 and _QUOTA.search(body):
        return Trouble(what, remedy="the account has no credit left: pay the provider, or take another model")
    if status != 429 and _CONTEXT.search(said):
        return Trouble(what, remedy=CONTEXT_REMEDY)
    if status in RETRIED or (status >= 500 and status not in _NEVER):
        return Trouble(what, retry=True, after_s=retry_after_s(headers), lost=status in {408, 504})
    if status in {401, 403} or (status == 400 and _BAD_KEY.search(body)):
        return Trouble(what, remedy=key_remedy(api_key_env))
    return Trouble(what, remedy="change what it complains about: model, max_tokens, temperature or base_url")


def of_redirect(status: int, location: str, asked: str, base_url: str) -> Trouble:
    """The trouble of a server that sends requests elsewhere: there the prompt and the key would go, so nobody does.

    Args:
        status: 3xx.
        location: where to, as the server says.
        asked: the address that was asked.
        base_url: of which it is a part.
    """
    try:
        there = shown_url(urljoin(asked, location))
        path = urlsplit(asked).path.removeprefix(urlsplit(base_url).path.rstrip("/"))
    except ValueError:
        there, path = "", ""
    there = "".join(one for one in there if one.isprintable())[:300]
    what = f"{status}: it sends requests on to {there or 'nowhere'}, where nothing was sent"
    instead = there.removesuffix(path)
    if not path or instead in (there, shown_url(base_url).rstrip("/")):
        return Trouble(what, remedy="check base_url: a login page or a proxy may be in between")
    return Trouble(what, remedy=f"if prompts and the key may go there, set llm.base_url to {instead}")


def of_error_object(error: object) -> Trouble:
    """The trouble that an error tells of which came with status 200."""
    said = said_in(json.dumps({"error": error}))
    fields = error if isinstance(error, dict) else {}
    code = str(fields.get("code") or fields.get("status") or "")
    number = int(code) if re.fullmatch(r"[0-9]{3}", code) else 0
    words = f"{code} {fields.get('type')} {said if not fields.get('type') else ''}"
    what = f"an error in place of an answer: {said}"
    if number != 429 and _CONTEXT.search(f"{words} {said}"):
        return Trouble(what, remedy=CONTEXT_REMEDY)
    again = number in RETRIED or number >= 500 or (not number and bool(_RETRIED_CODES.search(words)))
    return Trouble(
        what,
        retry=again,
        remedy="" if again else "change what it complains about",
        # It may have begun to answer.
        lost=again,
    )


def key_remedy(api_key_env: str) -> str:
    """What to do about a key that is missing or wrong."""
    if api_key_env:
        return f"set the environment variable {api_key_env} to a key that is valid there"
    return "this server wants a key: name the environment variable that has it as api_key_env"


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """How long a server wants to be left alone: `Retry-After` in seconds or as a date, or OpenAI's in milliseconds."""
    if (exact := _seconds(headers.get("retry-after-ms", ""))) is not None:
        return exact / 1e3
    value = headers.get("retry-after", "").strip()
    if (seconds := _seconds(value)) is not None:
        return seconds
    try:
        when = parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=timezone.utc)
    return max(0.0, (when - datetime.now(timezone.utc)).total_seconds())


def said_in(body: str) -> str:
    """What an error's body says to people, in one line of at most 300 characters."""
    try:
        text = _message(json.loads(body))
    except (ValueError, RecursionError):
        # Of a web page only the words.
        text = re.sub(r"<(script|style).*?</\1>|<[^>]*>", " ", body[:20_000], flags=re.DOTALL | re.IGNORECASE)
    text = "".join(one if one.isprintable() else " " for one in text)
    text = " ".join(text.split())
    return text if len(text) <= 300 else f"{text[:299]}…"


def _message(value: Any) -> str:
    """The words of an error's JSON, wherever this provider has them."""
    if isinstance(value, list):
        return "; ".join(_message(one) for one in value[:3])
    if not isinstance(value, dict):
        return str(value)
    for name in ("error", "message", "detail", "msg"):
        if value.get(name):
            return _message(value[name])
    return json.dumps(value)


def _seconds(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text.strip()) else None


def shown_url(url: str) -> str:
    """An address without a password that may be in it."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def scrubbed(text: str, key: str) -> str:
    """A text without the key, should a server have echoed it."""
    return text.replace(key, "[key]") if len(key) >= SHORTEST_KEY else text
