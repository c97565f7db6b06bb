"""Asking a server until it answers: tries, pauses between them, and what it does not take."""

from __future__ import annotations

import importlib
import random
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from threading import Event
from typing import TYPE_CHECKING, Any

from pytest_cgins.core.errors import ProviderError
from pytest_cgins.core.text import counted, nearest
from pytest_cgins.regenerate.conversation import Answer, Request, Usage
from pytest_cgins.regenerate.provider import failures as troubles
from pytest_cgins.regenerate.provider import reply as replies
from pytest_cgins.regenerate.provider.base import Order, priced
from pytest_cgins.regenerate.provider.failures import LIMIT_NBYTES, Trouble
from pytest_cgins.regenerate.provider.files import MOST_LOST, Failure, LostAnswers
from pytest_cgins.regenerate.provider.reply import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from openai import APIStatusError, OpenAI

NO_KEY = "none"
"""For servers without keys; the client wants some string."""

_STREAM_NBYTES = 64 * LIMIT_NBYTES
"""A token in a stream comes with a few hundred bytes around it."""

_MODELS_S = 5.0


@dataclass(eq=False, repr=False)
class Asking:
    """One request and its tries."""

    order: Order
    """Where, and how long."""
    request: Request
    """What."""
    key: str
    """"" for a server without keys."""
    _: KW_ONLY
    alone: Event
    """Set when the process that wanted the answer is gone: then no new try is begun."""
    before: LostAnswers
    """What was asked in vain by others."""
    tell: Callable[[str], None]
    """Takes a line for each try that failed."""

    def __post_init__(self) -> None:
        self._server = troubles.shown_url(self.order.base_url)
        self._started = time.monotonic()
        self._deadline = self._started + self.order.limits.deadline_s
        self.tries = self.before.tries
        self.lost: list[Usage] = []
        """What tries took whose answers are lost."""

    def run(self) -> Answer | Failure | None:
        """The answer, or why there is none; None if nobody wants another try."""
        arguments = _arguments_of(self.request, self.order)
        dropped: set[str] = set()
        broken: list[int] = []
        failed = 0
        with _client(self.order, self.key or NO_KEY) as client:
            while True:
                self.tries += 1
                reply = Reply()
                try:
                    return self._answer(self._once(client, arguments, reply))
                except Trouble as trouble:
                    if _adjust(arguments, trouble, dropped):
                        self.tell(
                            self._clean(f"try {self.tries}: {trouble.what}; again without what it refused")
                        )
                        pause_s = 0.0
                    else:
                        failed += 1
                        pause_s = self._pause_s(trouble, failed)
                        if trouble.lost or reply.nchars or reply.usage:
                            self.lost.append(replies.usage_of(reply, self.request))
                        if trouble.broke:
                            broken.append(reply.nchars)
                        if why := self._over(trouble, failed, pause_s, broken):
                            return why
                        self.tell(self._clean(f"try {self.tries}: {trouble.what}; again in {pause_s:.1f} s"))
                if self.alone.wait(pause_s):
                    return None

    def _once(self, client: OpenAI, arguments: dict[str, Any], reply: Reply) -> Reply:
        """One try; `reply` has what came if it breaks."""
        import openai

        limits = self.order.limits
        limit_s = max(0.1, min(limits.try_s, self._deadline - time.monotonic()))
        # Without a stream nothing comes until all is there.
        idle_s = min(limits.idle_s, limit_s) if arguments["stream"] else limit_s
        timeout = openai.Timeout(idle_s, connect=min(limits.connect_s, limit_s))
        ends = time.monotonic() + limit_s
        create = client.chat.completions.with_streaming_response.create
        try:
            with create(**arguments, timeout=timeout) as response:
                kind = response.headers.get("content-type", "").lower()
                pieces = _pieces(response, ends, _STREAM_NBYTES if "event-stream" in kind else LIMIT_NBYTES)
                if "text/html" in kind:
                    page = troubles.said_in(b"".join(pieces).decode(errors="replace"))[:100]
                    raise Trouble(
                        f"a web page in place of an answer: {page}",
                        remedy=f"base_url is {self._server}: it must be the API's, as a rule with /v1 at its end",
                    )
                if "event-stream" not in kind:
                    return replies.whole(b"".join(pieces))
                replies.streamed(pieces, reply, self.request.max_tokens)
                return reply
        except openai.APIStatusError as error:
            raise self._of_status(client, error) from None
        except openai.APIConnectionError as error:
            raise _of_connection(error, idle_s) from None
        except (openai.OpenAIError, UnicodeError, ValueError) as error:
            raise Trouble(f"{type(error).__name__}: {error}", remedy="check model and base_url") from None

    def _of_status(self, client: OpenAI, error: APIStatusError) -> Trouble:
        if 300 <= error.status_code < 400:
            location = error.response.headers.get("location", "")
            asked = str(error.request.url)
            return troubles.of_redirect(error.status_code, location, asked, self.order.base_url)
        body = error.response.text
        trouble = troubles.of_status(
            error.status_code, error.response.headers, body, api_key_env=self.order.api_key_env
        )
        trouble.status, trouble.body = error.status_code, body
        if error.status_code == 404:
            trouble.remedy = self._models(client)
        return trouble

    def _models(self, client: OpenAI) -> str:
        """What to do where a model or an address is not known."""
        import openai

        try:
            names = [one.id.removeprefix("models/") for one in client.models.list(timeout=_MODELS_S).data]
        except (openai.OpenAIError, AttributeError, TypeError, ValueError):
            return f"base_url is {self._server}: it must be the API's, as a rule with /v1 at its end; or check the model"
        if self.request.model in names:
            return f"the server lists this model, but has no chat completions at {self._server}"
        guess = nearest(self.request.model, names)
        known = ", ".join(sorted(names)[:8]) or "none"
        return " ".join(filter(None, (guess, f"the server has: {known}{', …' if len(names) > 8 else ''}")))

    def _answer(self, reply: Reply) -> Answer:
        usage = replies.usage_of(reply, self.request)
        return Answer(
            text=self._clean(reply.text),
            finish=reply.finish,
            model=self._clean(reply.model) or self.request.model,
            usage=priced(self._with_lost(usage), self.order.price),
            seconds=time.monotonic() - self._started,
            tries=self.tries,
        )

    def taken(self) -> Usage | None:
        """What all that was lost has taken, also by those who asked before; None if nothing was."""
        if not self.lost and self.before.usage is None:
            return None
        return priced(self._with_lost(_NOTHING), self.order.price)

    def _with_lost(self, usage: Usage) -> Usage:
        for one in (*filter(None, (self.before.usage,)), *self.lost):
            usage = replies.total(usage, one)
        return usage

    def _pause_s(self, trouble: Trouble, failed: int) -> float:
        limits = self.order.limits
        longest = min(limits.pause_s * 2.0 ** (failed - 1), limits.longest_pause_s)
        pause_s = longest * random.uniform(0.5, 1.0)  # noqa: S311
        # A little more than is asked for, so that those who were sent off together do not come back together.
        return pause_s if trouble.after_s is None else trouble.after_s + pause_s / 10

    def _over(self, trouble: Trouble, failed: int, pause_s: float, broken: Sequence[int]) -> Failure | None:
        """Why there is no further try, if there is none. `broken` has how much came of answers that broke off."""
        limits = self.order.limits
        what, remedy = f'{self._server} was asked for "{self.request.model}": {trouble.what}', trouble.remedy
        if len(broken) > 1 and broken[-1] == broken[-2]:
            # No accident, and each try may be billed.
            what = f"{what} (twice after {counted(broken[-1], 'character', grouped=True)})"
            remedy = f"see what the server says of it; if it is its context: {troubles.CONTEXT_REMEDY}"
        elif trouble.retry and len(self.lost) >= MOST_LOST:
            what = (
                f"{what} (after {counted(failed, 'try', 'tries')}, of which {len(self.lost)} may be billed)"
            )
            remedy = "see what the server says of it, and resume the run later"
        elif trouble.retry and failed >= limits.tries:
            what = f"{what} (after {counted(failed, 'try', 'tries')})"
            remedy = "see whether the server is up, and resume the run later"
        elif trouble.retry and time.monotonic() + pause_s >= self._deadline:
            wish = f"; it wants to be left alone for {trouble.after_s:.0f} s" if trouble.after_s else ""
            what = f"{what}{wish} (no time for another try within {limits.deadline_s:g} s)"
            remedy = "resume the run later, or allow more time"
        elif trouble.retry:
            return None
        taken = self.taken()
        if taken is not None:
            how = "in part by estimate" if taken.estimated else "as the server counted"
            what = f"{what}; {counted(taken.prompt_tokens + taken.answer_tokens, 'token is', 'tokens are', grouped=True)} booked for it, {how}"
        return Failure(
            what=self._clean(what),
            remedy=self._clean(remedy),
            retry=trouble.retry,
            tries=self.tries,
            usage=taken,
        )

    def _clean(self, text: str) -> str:
        return troubles.scrubbed(text, self.key)


_NOTHING = Usage(prompt_tokens=0, cached_tokens=0, answer_tokens=0, usd=None)


def _arguments_of(request: Request, order: Order) -> dict[str, Any]:
    """Arguments for the client's `chat.completions.create`."""
    arguments: dict[str, Any] = {
        "model": request.model,
        "messages": [{"role": message.role, "content": message.text} for message in request.messages],
        order.tokens_field: request.max_tokens,
        "stream": order.stream,
    }
    if order.stream:
        arguments["stream_options"] = {"include_usage": True}
    if request.temperature is not None:
        arguments["temperature"] = request.temperature
    return arguments


def _adjust(arguments: dict[str, Any], trouble: Trouble, dropped: set[str]) -> bool:
    """Take out of the arguments what a server says that it does not take; False if that is not the trouble.

    Args:
        arguments: of the try that was refused; changed in place.
        trouble: what the server said.
        dropped: what was taken out before, which does not come back.
    """
    if trouble.status not in {400, 404, 405, 422, 501}:
        return False
    said = trouble.body.lower()
    other = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
    if "stream_options" in arguments and "stream_options" in said:
        del arguments["stream_options"]
        return True
    if arguments["stream"] and (trouble.status in {405, 501} or re.search(r"\bstream(ing|ed)?\b", said)):
        arguments.pop("stream_options", None)
        arguments["stream"] = False
        return True
    for name, instead in other.items():
        if name in arguments and name in said and instead not in dropped:
            arguments[instead] = arguments.pop(name)
            dropped.add(name)
            return True
    if "temperature" in arguments and "temperature" in said:
        del arguments["temperature"]
        return True
    return False


def _client(order: Order, key: str) -> OpenAI:
    import openai

    try:
        # Redirects would take the prompt to whom the server names. Tries are counted here, hence none by the client.
        http = openai.DefaultHttpxClient(follow_redirects=False)
        return openai.OpenAI(api_key=key, base_url=order.base_url, max_retries=0, http_client=http)
    except (openai.OpenAIError, ValueError, TypeError) as error:
        raise ProviderError(
            f"no client for {troubles.shown_url(order.base_url)}: {error}", remedy="check base_url"
        ) from None


def _pieces(response: Any, ends: float, most_nbytes: int) -> Iterator[bytes]:
    """The bytes of a body, as long as time and size allow."""
    http = importlib.import_module(type(response.http_response).__module__.partition(".")[0])
    nbytes = 0
    try:
        for piece in response.iter_bytes():
            nbytes += len(piece)
            if nbytes > most_nbytes:
                raise troubles.too_large()
            if time.monotonic() > ends:
                raise Trouble("the answer did not end in time", retry=True, lost=True)
            yield piece
    except http.TimeoutException:
        raise Trouble("the server fell silent in the middle of its answer", retry=True, lost=True) from None
    except http.RequestError as error:
        raise Trouble(
            f"the answer broke off: {error or type(error).__name__}", retry=True, lost=True, broke=True
        ) from None


def _of_connection(error: Exception, idle_s: float) -> Trouble:
    cause = error.__cause__
    name = type(cause).__name__
    if name in {"ConnectTimeout", "PoolTimeout"}:
        return Trouble("no connection in time", retry=True)
    if "Timeout" in name:
        return Trouble(f"no answer within {idle_s:g} s", retry=True, lost=True)
    if name in {"ConnectError", "ProxyError"}:
        return Trouble(f"no connection: {cause}", retry=True)
    if name in {"UnsupportedProtocol", "LocalProtocolError"}:
        # Its own words may have the key in them, quoted in a way that hides it from a search.
        return Trouble(
            "base_url or the key cannot be used in a request", remedy="check both for stray characters"
        )
    return Trouble(f"the connection broke: {cause or error}", retry=True, lost=True)
