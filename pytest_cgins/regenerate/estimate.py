"""How many tokens a prompt may have, before a provider has counted them."""

from __future__ import annotations

import math

from pytest_cgins.regenerate.model import Answer, Request

MESSAGE_TOKENS = 16
"""What a template adds to each message, and once to the whole."""
FIRST_BYTES_PER_TOKEN = 2.0
"""Before a model has answered. Source code has three to four; tables of numbers have one with some tokenizers."""
MOST_BYTES_PER_TOKEN = 4.0
MARGIN = 1.25
"""How much denser than the densest prompt so far the next one may be."""


class Estimate:
    """Upper bounds of the tokens of prompts, by model."""

    def __init__(self) -> None:
        self._tokens_per_byte: dict[str, float] = {}

    def tokens(self, request: Request) -> int:
        """So many at most."""
        rate = self._tokens_per_byte.get(request.model)
        rate = 1 / FIRST_BYTES_PER_TOKEN if rate is None else max(rate * MARGIN, 1 / MOST_BYTES_PER_TOKEN)
        return math.ceil(_nbytes(request) * rate) + _overhead(request)

    def learn(self, request: Request, answer: Answer) -> None:
        """Take in what a prompt really had; of several tries nobody knows what each had."""
        nbytes = _nbytes(request)
        if answer.usage.estimated or answer.tries != 1 or not nbytes or not answer.usage.prompt_tokens:
            return
        rate = max(0, answer.usage.prompt_tokens - _overhead(request)) / nbytes
        self._tokens_per_byte[request.model] = max(rate, self._tokens_per_byte.get(request.model, 0.0))


def _nbytes(request: Request) -> int:
    return sum(len(message.text.encode("utf-8", "surrogatepass")) for message in request.messages)


def _overhead(request: Request) -> int:
    return MESSAGE_TOKENS * (len(request.messages) + 1)
