"""What a request becomes for a server, and what is left out of it where the server does not take it."""

from __future__ import annotations

import re
from typing import Any

from pytest_cgins.regenerate.model import Request
from pytest_cgins.regenerate.provider.order import Order
from pytest_cgins.regenerate.provider.trouble import Trouble


class Refused(Trouble):
    """A status that may be about a single parameter."""

    def __init__(self, trouble: Trouble, status: int, body: str) -> None:
        super().__init__(
            trouble.what,
            remedy=trouble.remedy,
            retry=trouble.retry,
            after_s=trouble.after_s,
            lost=trouble.lost,
        )
        self.status = status
        self.body = body


def arguments_of(request: Request, order: Order) -> dict[str, Any]:
    """Arguments for the client's `chat.completions.create`."""
    arguments: dict[str, Any] = {
        "model": request.model,
        "messages": [{"role": one.role, "content": one.text} for one in request.messages],
        order.tokens_field: request.max_tokens,
        "stream": order.stream,
    }
    if order.stream:
        arguments["stream_options"] = {"include_usage": True}
    if request.temperature is not None:
        arguments["temperature"] = request.temperature
    return arguments


def adjust(arguments: dict[str, Any], trouble: Trouble, dropped: set[str]) -> bool:
    """Take out of the arguments what a server says that it does not take; False if that is not the trouble.

    Args:
        arguments: of the try that was refused; changed in place.
        trouble: what the server said.
        dropped: what was taken out before, which does not come back.
    """
    if not isinstance(trouble, Refused) or trouble.status not in {400, 404, 405, 422, 501}:
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
