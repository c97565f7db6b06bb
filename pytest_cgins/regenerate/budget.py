"""What a run may still take: tokens, money, minutes and attempts, each a hard limit.

Before a request is sent, its worst case is reserved: all of its prompt and the longest answer that it allows. What
does not fit is not sent, or with a shorter answer. So no sequence of answers takes more than the budget, as long as

- a provider ends an answer at `max_tokens` (a stream is ended here), and tells truly what it took;
- a prompt has no more tokens than is estimated (`Estimate` learns from the answers of the run);
- a try that is lost is not billed.

Where one of these does not hold, what was taken counts once it is known, and nothing more is asked for: a run is then
over its limit by the requests in flight at most. A provider that lies about what it took is not found out.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, fields, replace
from pathlib import Path

from pytest_cgins.config.llm import Budget, Price
from pytest_cgins.core.errors import BudgetError, ProviderError
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.conversation import Answer, Request, Usage
from pytest_cgins.regenerate.provider import files
from pytest_cgins.regenerate.provider.base import Provider, priced


def money(usd: float) -> str:
    """`0.42 USD`; four digits behind the point where it is less than ten cents."""
    return f"{usd:,.{2 if usd >= 0.1 or not usd else 4}f} USD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a run has taken so far."""

    requests: int = 0
    """Answers, and requests that were lost."""
    prompt_tokens: int = 0
    """Tokens of prompts, cached ones among them."""
    answer_tokens: int = 0
    """Tokens of answers."""
    usd: float = 0.0
    """Cost of all requests that have one."""
    estimated: int = 0
    """Requests whose provider did not count, or not all: their tokens are estimated."""
    unpriced: int = 0
    """Requests of models without a price: their cost is unknown."""
    seconds: float = 0.0
    """Wall time over all parts of the run."""

    @property
    def tokens(self) -> int:
        """Of prompts and answers."""
        return self.prompt_tokens + self.answer_tokens

    def cost(self) -> str:
        """The money in words: `0.42 USD`, `cost unknown`, or both."""
        known = money(self.usd) if self.usd or not self.unpriced else ""
        unknown = f"cost of {self.unpriced} unknown" if known else "cost unknown"
        return ", ".join(filter(None, [known, unknown if self.unpriced else ""]))

    def words(self) -> str:
        """In one line: `41,203 tokens, 0.42 USD, 3.1 min`."""
        requests = counted(self.requests, "request")
        how = f" (of {self.estimated} of {requests} by estimate)" if self.estimated else ""
        return (
            f"{counted(self.tokens, 'token', grouped=True)}{how}, {self.cost()}, {self.seconds / 60:.1f} min"
        )


def spent_by(request: Request, usage: Usage, *, seconds: float = 0.0) -> Spent:
    """What one request took."""
    return Spent(
        requests=1,
        prompt_tokens=usage.prompt_tokens,
        answer_tokens=usage.answer_tokens,
        usd=usage.usd or 0.0,
        estimated=int(usage.estimated),
        # Who has no name is a person or an agent, whom the run does not pay.
        unpriced=int(usage.usd is None and bool(request.model)),
        seconds=seconds,
    )


def total(parts: Iterable[Spent]) -> Spent:
    """All of them together."""
    known = tuple(parts)
    return Spent(**{one.name: sum(getattr(part, one.name) for part in known) for one in fields(Spent)})


MESSAGE_TOKENS = 16
"""What a template adds to each message, and once to the whole."""
FIRST_BYTES_PER_TOKEN = 2.0
"""Before a model has answered. Source code has three to four; tables of numbers have one with some tokenizers."""
MOST_BYTES_PER_TOKEN = 4.0
MARGIN = 1.25
"""How much denser than the densest prompt so far the next one may be."""

LEAST_ANSWER_TOKENS = 256
"""A shorter answer has no kernel in it: with less left a budget is used up."""
LEAST_SECONDS = 1.0
"""No answer comes in less."""
_REMEDY = "raise llm.budget.{key} in cgins.yaml, and go on with: cgins runs resume"


@dataclass(eq=False, repr=False)
class Ledger:
    """The books of one run, over all its parts. Several threads may use it.

    A run that is resumed makes a new one, gives it the seconds of the earlier parts, and books anew what the journal
    has: `settle`, `lose` and `resume`. What is booked for a request stands in place of what was booked for it before: the
    usage of an answer or a failure has in it what earlier tries took.
    """

    budget: Budget
    """The limits."""
    prices: Mapping[str, Price]
    """By name of the model."""
    _: KW_ONLY
    earlier_s: float = 0.0
    """What earlier parts of the run took."""
    clock: Callable[[], float] = time.monotonic
    """Seconds since any moment."""

    def __post_init__(self) -> None:
        self._began = self.clock() - self.earlier_s
        self._booked: dict[str, Spent] = {}
        self._flights: dict[str, tuple[int, float]] = {}
        """The most that each request under way can take: tokens, and money."""
        self._estimate = Estimate()
        self._lock = threading.Lock()

    def spent(self) -> Spent:
        """What has been taken, without what is under way."""
        with self._lock:
            return replace(total(self._booked.values()), seconds=self._seconds())

    def seconds_left(self, what: str = "the next step") -> float:
        """Seconds until the run must end, infinite without a limit.

        Raises:
            BudgetError: none are left for `what`.
        """
        limit, passed = self.budget.minutes, self._seconds()
        left = math.inf if limit is None else limit * 60 - passed
        if left < LEAST_SECONDS:
            so_far = f"{passed / 60:.1f} of {limit:g} minutes have passed"
            raise _used_up("minutes", f"{so_far}, none are left for {what}")
        return left

    def require(self, request: Request) -> Request:
        """Reserve the worst case of a request, until it is settled or lost.

        Where requests are under way, one that is refused may fit once they are settled.

        Returns:
            The request as it may be sent: its `max_tokens` may be less than was asked for.

        Raises:
            BudgetError: it does not fit into what is left.
        """
        self.seconds_left(request.id)
        with self._lock:
            # One that is asked again, as when a run is resumed, takes its own place.
            self._flights.pop(request.id, None)
            prompt = self._estimate.tokens(request)
            answer = self._room(request, prompt)
            self._flights[request.id] = prompt + answer, self._worst_usd(request.model, prompt, answer)
        return replace(request, max_tokens=answer)

    def resume(self, request: Request) -> None:
        """Reserve the worst case of a request that an earlier part of the run has sent, and which may still be answered."""
        with self._lock:
            prompt, answer = self._estimate.tokens(request), request.max_tokens
            self._flights[request.id] = prompt + answer, self._worst_usd(request.model, prompt, answer)

    def settle(self, request: Request, answer: Answer) -> None:
        """Book what an answer took, in place of what was reserved for it."""
        with self._lock:
            self._flights.pop(request.id, None)
            self._estimate.learn(request, answer)
            self._book(request, answer.usage)

    def lose(self, request: Request, usage: Usage | None) -> None:
        """Book what a request took that has no answer, or none yet; None: nothing more than is booked."""
        with self._lock:
            self._flights.pop(request.id, None)
            if usage is not None:
                self._book(request, usage)

    def under_way(self) -> tuple[str, ...]:
        """Ids of the requests that are neither settled nor lost."""
        with self._lock:
            return tuple(self._flights)

    def _seconds(self) -> float:
        return self.clock() - self._began

    def _room(self, request: Request, prompt: int) -> int:
        """Most tokens of an answer that fit into every budget.

        Raises:
            BudgetError: a budget has too little left.
        """
        least = min(LEAST_ANSWER_TOKENS, request.max_tokens)
        room = request.max_tokens
        flights, spent = tuple(self._flights.values()), total(self._booked.values())
        limit = self.budget.tokens
        if limit is not None:
            reserved = sum(tokens for tokens, _ in flights)
            room = min(room, limit - spent.tokens - reserved - prompt)
            if room < least:
                used = f"{spent.tokens:,} of {counted(limit, 'token is', 'tokens are', grouped=True)} spent"
                under_way = f"{reserved:,}" if flights else ""
                raise _no_room("tokens", used, under_way, request, f"{prompt + least:,}")
        money_limit = self.budget.usd
        if money_limit is not None and request.model:
            reserved_usd = math.fsum(usd for _, usd in flights)
            left_usd = money_limit - spent.usd - reserved_usd
            room = self._affordable(request.model, prompt, room, left_usd)
            if room < least:
                used = f"{money(spent.usd)} of {money(money_limit)} are spent"
                need = money(self._worst_usd(request.model, prompt, least))
                raise _no_room("usd", used, money(reserved_usd) if flights else "", request, need)
        return room

    def _affordable(self, model: str, prompt: int, most: int, left_usd: float) -> int:
        """Most tokens of an answer that so much money pays, if it pays the prompt; at least -1."""
        spare = left_usd - self._worst_usd(model, prompt, 0)
        if spare < 0:
            return -1
        a_token = self._price(model).output_usd_per_million_tokens / 1e6
        room = most if spare >= most * a_token else int(spare / a_token)
        # A division may round up.
        return room - (self._worst_usd(model, prompt, room) > left_usd)

    def _worst_usd(self, model: str, prompt: int, answer: int) -> float:
        """Most that a prompt and an answer of so many tokens cost; 0 where that limits nothing."""
        if self.budget.usd is None or not model:
            return 0.0
        price = self._price(model)
        asked = max(price.input_usd_per_million_tokens, price.cached_input_usd_per_million_tokens or 0.0)
        return (prompt * asked + answer * price.output_usd_per_million_tokens) / 1e6

    def _price(self, model: str) -> Price:
        if model not in self.prices:
            raise BudgetError(
                f'the budget is {money(self.budget.usd or 0)}, and model "{model}" has no price',
                remedy=f'add llm.prices: {{"{model}": {{input: …, output: …}}}}, or drop budget.usd',
            )
        return self.prices[model]

    def _book(self, request: Request, usage: Usage) -> None:
        known = usage if usage.usd is not None else priced(usage, self.prices.get(request.model))
        self._booked[request.id] = spent_by(request, known)


def _no_room(key: str, used: str, reserved: str, request: Request, need: str) -> BudgetError:
    under_way = f", requests under way may take {reserved}" if reserved else ""
    return _used_up(key, f"{used}{under_way}, and {request.id} may need {need}")


def _used_up(key: str, what: str) -> BudgetError:
    return BudgetError(f"budget.{key} is used up: {what}", remedy=_REMEDY.format(key=key))


# ---- how many tokens a prompt may have, before a provider has counted them


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


@dataclass(eq=False, repr=False)
class Inquiry:
    """A request and its place."""

    request: Request
    """What is asked; with a shorter answer, where the budget allows no longer one."""
    folder: Path
    """Where its answer will lie."""
    ledger: Ledger
    """Counts what it takes."""
    keep: Callable[[Request], object]
    """Writes a request that is new into its place."""
    _: KW_ONLY
    counts_earlier: bool = True
    """Whether an answer that an earlier process took counts here as well."""

    def __post_init__(self) -> None:
        self.answer: Answer | None = None
        """None until it is there."""
        self._is_begun = False
        self._counts = True

    def ask(self, provider: Provider) -> Answer | None:
        """The answer, if it is there; the same may be asked again and again.

        Raises:
            BudgetError: its worst case does not fit into what is left.
            ProviderError: there will be none.
        """
        if not self._is_begun:
            self._begin()
        try:
            self.answer = provider.ask(self.request, self.folder)
        except ProviderError:
            self.ledger.lose(self.request, files.taken_in(self.folder))
            raise
        if self.answer is not None and self._counts:
            self.ledger.settle(self.request, self.answer)
        return self.answer

    def _begin(self) -> None:
        """Have the request in its place, and its worst case within the budget."""
        failure = files.failure_in(self.folder)
        if not (self.folder / files.REQUEST).exists():
            self.request = self.ledger.require(self.request)
            self.keep(self.request)
        elif failure is not None:
            # An earlier process asked in vain, and the remedy has been heeded meanwhile: it is asked anew.
            self.request = self.ledger.require(self.request)
            files.write_json(self.folder / files.REQUEST, self.request)
            files.retract_failure(self.folder)
        elif files.is_settled(self.folder):
            self._counts = self.counts_earlier
        else:
            self.ledger.resume(self.request)
        self._is_begun = True
