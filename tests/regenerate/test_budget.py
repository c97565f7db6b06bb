"""Hard budgets: what is spent never passes a limit, over requests under way, resumed runs and lost answers."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cgins.config.llm import Budget, Price
from pytest_cgins.core.errors import BudgetError
from pytest_cgins.regenerate.budget import Estimate, Ledger, Spent, money
from pytest_cgins.regenerate.conversation import Answer, Message, Request, Usage

UNLIMITED = Budget(tokens=None, usd=None, minutes=None)
PRICES = {"m": Price(input_usd_per_million_tokens=1.0, output_usd_per_million_tokens=10.0)}


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def ledger(budget: Budget, prices: Mapping[str, Price] = PRICES, **more: float) -> Ledger:
    return Ledger(budget, prices, clock=Clock(), **more)


def request(name: str = "a", text: str = "x" * 400, model: str = "m", max_tokens: int = 1000) -> Request:
    message = Message(role="user", text=text)
    return Request(id=name, role="generator", model=model, messages=(message,), max_tokens=max_tokens)


def answer(prompt: int = 100, out: int = 100, **more: object) -> Answer:
    fields = {
        "cached_tokens": 0,
        "usd": None,
        **{key: more.pop(key) for key in ("usd", "cached_tokens") if key in more},
    }
    usage = Usage(
        prompt_tokens=prompt, answer_tokens=out, estimated=bool(more.pop("estimated", False)), **fields
    )
    return Answer(text="", finish="stop", model="m", usage=usage, seconds=1.0, **more)


def refused(books: Ledger, asked: Request, **more: int) -> BudgetError:
    with pytest.raises(BudgetError) as caught:
        books.require(asked, **more)
    return caught.value


def test_without_limits_all_is_let_through() -> None:
    """A request is as it was where nothing is limited."""
    books = ledger(UNLIMITED)
    assert books.require(request()) == request()
    assert books.seconds_left() == math.inf


def test_an_answer_is_made_to_fit() -> None:
    """Near the limit an answer may have what is left once the prompt's worst case is taken off."""
    books = ledger(replace(UNLIMITED, tokens=1000))
    # 400 bytes at two a token, and what a template adds.
    assert books.require(request()).max_tokens == 1000 - 232


def test_tokens_used_up() -> None:
    """A request whose prompt leaves too little for an answer is refused, with the numbers and the remedy."""
    books = ledger(replace(UNLIMITED, tokens=1000))
    books.settle(request("a/attempt-01/generator"), answer(200, 350))
    error = refused(books, request("a/attempt-02/generator", text="x" * 4000))
    assert str(error) == (
        "budget.tokens is used up: 550 of 1,000 tokens are spent, and a/attempt-02/generator may need 2,388\n"
        "→ raise llm.budget.tokens in cgins.yaml, and go on with: cgins runs resume"
    )


def test_money_used_up() -> None:
    """Money is limited by the price of the answer, and by that of a prompt of which nothing is cached."""
    books = ledger(replace(UNLIMITED, usd=0.01))
    books.settle(request("a"), answer(100, 780))
    assert books.spent().usd == pytest.approx(0.0079)
    assert str(refused(books, request("b"))) == (
        "budget.usd is used up: 0.0079 USD of 0.0100 USD are spent, and b may need 0.0027 USD\n"
        "→ raise llm.budget.usd in cgins.yaml, and go on with: cgins runs resume"
    )


def test_money_cuts_an_answer() -> None:
    """An answer may be as long as what is left pays for."""
    books = ledger(replace(UNLIMITED, usd=0.005))
    assert books.require(request()).max_tokens == int((0.005 - 232 / 1e6) / 10e-6)


def test_a_cached_token_may_be_dearer() -> None:
    """Where writing to a cache costs more than not to, the worst case is that."""
    prices = {"m": replace(PRICES["m"], cached_input_usd_per_million_tokens=4.0)}
    books = ledger(replace(UNLIMITED, usd=0.005), prices)
    assert books.require(request()).max_tokens == int((0.005 - 4 * 232 / 1e6) / 10e-6)


def test_a_model_without_a_price() -> None:
    """A limit of money cannot be kept for a model without a price."""
    error = refused(ledger(replace(UNLIMITED, usd=5.0)), request(model="other"))
    assert error.what == 'the budget is 5.00 USD, and model "other" has no price'
    assert error.remedy == 'add llm.prices: {"other": {input: …, output: …}}, or drop budget.usd'


def test_a_person_costs_nothing() -> None:
    """Who has no name is a person, an agent or a recording: no price is asked for, and nothing is unknown."""
    books = ledger(replace(UNLIMITED, usd=0.0001))
    books.settle(books.require(request(model="")), answer())
    assert books.spent().words() == "200 tokens, 0.00 USD, 0.0 min"


def test_minutes_used_up() -> None:
    """Time counts over all parts of a run, and ends it between two steps."""
    clock = Clock()
    books = Ledger(replace(UNLIMITED, minutes=10), {}, earlier_s=240.0, clock=clock)
    clock.now += 60
    assert books.spent().seconds == 300.0
    assert books.seconds_left() == 300.0
    clock.now += 299.5
    with pytest.raises(BudgetError) as caught:
        books.seconds_left("the check of a")
    assert str(caught.value) == (
        "budget.minutes is used up: 10.0 of 10 minutes have passed, none are left for the check of a\n"
        "→ raise llm.budget.minutes in cgins.yaml, and go on with: cgins runs resume"
    )
    assert "none are left for b" in refused(books, request("b")).what


def test_requests_under_way_are_reserved() -> None:
    """What others may take is not given twice, and is free again once they are settled."""
    books = ledger(replace(UNLIMITED, tokens=2500))
    books.require(request("a"))
    assert books.require(request("b")).max_tokens == 1000
    assert books.under_way() == ("a", "b")
    assert "requests under way may take 2,464, and c may need 488" in refused(books, request("c")).what
    books.settle(request("a"), answer(100, 50))
    assert books.under_way() == ("b",)
    # Prompts were thinner than was thought: four bytes a token now.
    assert books.require(request("c")).max_tokens == 2500 - 150 - 1232 - 132


def test_money_under_way_is_reserved() -> None:
    """The same holds for money."""
    books = ledger(replace(UNLIMITED, usd=0.0230))
    books.require(request("a"))
    books.require(request("b"))
    assert (
        "0.00 USD of 0.0230 USD are spent, requests under way may take 0.0205 USD, and c may need 0.0028 USD"
        in (refused(books, request("c")).what)
    )


def test_lost_answers() -> None:
    """A request without an answer takes what is known to be lost, and nothing else."""
    books = ledger(UNLIMITED)
    books.require(request("a"))
    books.lose(request("a"), None)
    assert books.spent() == Spent()
    books.require(request("b"))
    books.lose(request("b"), answer(30, 12).usage)
    assert books.spent().tokens == 42
    assert books.under_way() == ()


def test_what_is_known_later_stands_in_place_of_what_was_known() -> None:
    """A request whose lost tries are booked is booked once: its answer's usage has them in it."""
    books = ledger(replace(UNLIMITED, tokens=3000))
    books.lose(request("a"), answer(500, 100).usage)
    assert (books.spent().requests, books.spent().tokens) == (1, 600)
    books.require(request("a"))
    # What was lost stays taken while the next try is under way.
    assert "600 of 3,000 tokens are spent, requests under way may take 1,232" in (
        refused(books, request("b", text="x" * 4000)).what
    )
    books.settle(request("a"), answer(900, 200))
    assert (books.spent().requests, books.spent().tokens) == (1, 1100)


def test_a_request_of_an_earlier_part() -> None:
    """What a killed run had sent is reserved again, and asking for it again does not count it twice."""
    books = ledger(replace(UNLIMITED, tokens=2400))
    books.resume(request("a"))
    assert books.require(request("b")).max_tokens == 2400 - 1232 - 232
    books.lose(request("b"), None)
    assert books.require(request("a")).max_tokens == 1000
    assert books.under_way() == ("a",)


def test_short_answers_may_be_asked_for() -> None:
    """A request for less than the least answer is let through if it fits."""
    books = ledger(replace(UNLIMITED, tokens=250))
    assert books.require(request(max_tokens=10)).max_tokens == 10
    assert "may need 242" in refused(books, request("b", max_tokens=10)).what


def test_unknown_cost() -> None:
    """What has no price is counted as unknown, beside what is known."""
    books = ledger(UNLIMITED)
    books.settle(request("a", model="other"), answer())
    assert books.spent().words() == "200 tokens, cost unknown, 0.0 min"
    books.settle(request("b", model="other"), answer(usd=0.25))
    books.settle(request("c"), answer(1_000_000, 0, cached_tokens=400_000))
    assert books.spent().words() == "1,000,400 tokens, 1.25 USD, cost of 1 unknown, 0.0 min"
    cached = {"m": replace(PRICES["m"], cached_input_usd_per_million_tokens=0.1)}
    books = ledger(UNLIMITED, cached)
    books.settle(request("c"), answer(1_000_000, 0, cached_tokens=400_000))
    assert books.spent().usd == pytest.approx(0.64)


def test_money_in_words() -> None:
    """Cents are told where there are some, fractions of them below."""
    assert [money(usd) for usd in (0, 0.00123, 0.1, 12345.678)] == [
        "0.00 USD",
        "0.0012 USD",
        "0.10 USD",
        "12,345.68 USD",
    ]


def test_estimates_learn() -> None:
    """Before a model has answered two bytes are a token; then a quarter more than its densest prompt had."""
    guess = Estimate()
    asked = request(text="x" * 4000)
    assert guess.tokens(asked) == 2000 + 32
    guess.learn(asked, answer(1200 + 32))
    assert guess.tokens(asked) == 1500 + 32
    guess.learn(asked, answer(400))
    assert guess.tokens(asked) == 1500 + 32
    assert guess.tokens(replace(asked, model="other")) == 2000 + 32
    dense = Estimate()
    dense.learn(asked, answer(4000 + 32))
    assert dense.tokens(asked) == 5000 + 32
    thin = Estimate()
    thin.learn(asked, answer(400))
    assert thin.tokens(asked) == 1000 + 32


@pytest.mark.parametrize("useless", [{"estimated": True}, {"tries": 2}, {"prompt": 0}])
def test_estimates_learn_only_what_is_known(useless: dict[str, object]) -> None:
    """Tokens that were estimated, or that several tries had, say nothing of a prompt."""
    guess = Estimate()
    guess.learn(request(), answer(**{"prompt": 3000, **useless}))
    assert guess.tokens(request()) == 232


def test_estimates_count_bytes() -> None:
    """A letter that takes several bytes may take several tokens."""
    assert Estimate().tokens(request(text="核" * 100)) == 150 + 32
    assert Estimate().tokens(request(text="\ud800")) == 2 + 32


def test_an_overrun_ends_a_run() -> None:
    """A provider that answers more than it was asked for is over the limit once, and is asked for nothing more."""
    books = ledger(replace(UNLIMITED, tokens=2000))
    books.settle(books.require(request("a")), answer(100, 9000))
    assert "9,100 of 2,000 tokens are spent" in refused(books, request("b")).what


# What a well-behaved provider may do: of each request, the part of its estimate that the prompt has, of its
# `max_tokens` that the answer has, and how many others are under way meanwhile.
STEPS = st.lists(
    st.tuples(
        st.integers(0, 3000), st.integers(1, 4000), st.floats(0, 1), st.floats(0, 1), st.integers(0, 3), st.booleans()
    ),
    max_size=25,
)  # fmt: skip


@pytest.mark.exam
@settings(max_examples=200, deadline=None)
@given(
    STEPS,
    st.integers(1, 20_000),
    st.floats(1e-4, 0.2),
    st.floats(0, 100),
    st.floats(0, 100),
    st.floats(0, 100),
    st.sampled_from(["", "m"]),
)
def test_no_limit_is_passed(
    steps: list[tuple[int, int, float, float, int, bool]],
    tokens: int,
    usd: float,
    asked: float,
    cached: float,
    answered: float,
    model: str,
) -> None:
    """Whatever is asked and answered, in whatever order, spent and reserved stay within tokens and money."""
    price = Price(
        input_usd_per_million_tokens=asked,
        output_usd_per_million_tokens=answered,
        cached_input_usd_per_million_tokens=cached,
    )
    books = ledger(replace(UNLIMITED, tokens=tokens, usd=usd), {"m": price})
    flying: list[tuple[Request, float, float]] = []

    def land() -> None:
        sent, of_prompt, of_answer = flying.pop(0)
        # An answer of this model's first estimate: `learn` may only make it greater where it was too small.
        prompt = int(of_prompt * (sum(len(one.text) for one in sent.messages) // 4))
        books.settle(sent, answer(prompt, int(of_answer * sent.max_tokens), cached_tokens=prompt // 2))
        spent = books.spent()
        assert spent.tokens <= tokens
        assert model == "" or spent.usd <= usd * (1 + 1e-9)

    for number, (nbytes, most, of_prompt, of_answer, others, lost) in enumerate(steps):
        wanted = request(str(number), "x" * nbytes, model, most)
        try:
            sent = books.require(wanted)
        except BudgetError:
            while flying:
                land()
            continue
        assert 0 < sent.max_tokens <= most
        if lost:
            books.lose(sent, None)
        else:
            flying.append((sent, of_prompt, of_answer))
        while len(flying) > others:
            land()
    while flying:
        land()
    assert books.under_way() == ()


def test_many_threads() -> None:
    """Threads that ask at once do not pass a limit together."""
    books = ledger(replace(UNLIMITED, tokens=30_000))
    sent: list[str] = []

    def ask(first: int) -> None:
        for number in range(first, first + 50):
            try:
                allowed = books.require(request(str(number), text=""))
            except BudgetError:
                return
            books.settle(allowed, answer(32, allowed.max_tokens))
            sent.append(allowed.id)

    threads = [threading.Thread(target=ask, args=(1000 * index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert books.spent().tokens <= 30_000
    assert len(sent) >= 28
