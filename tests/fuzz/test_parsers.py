"""Every parser of what others wrote, under hostile and mutated inputs; `benchmarks/fuzz.py` runs many more of them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.parsers import PARSERS, Parser
from tests.fuzz.watch import Watch

each = pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name.replace(" ", "-"))


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watch]:
    before = {number: signal.getsignal(number) for number in (signal.SIGPROF, signal.SIGALRM)}
    yield Watch(tmp_path_factory.getbasetemp())
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def parse_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Parser], Callable[[bytes], object]]:
    """What reads the inputs of a parser, once it has read the valid ones: libraries load parts of themselves then."""

    @cache
    def made(parser: Parser) -> Callable[[bytes], object]:
        parse = parser.make(tmp_path_factory.mktemp("fuzz"))
        for data in parser.seeds():
            parse(data)
        return parse

    return made


@pytest.mark.exam
@each
def test_hostile_inputs_are_refused(
    parser: Parser, watch: Watch, parse_of: Callable[[Parser], Callable[[bytes], object]]
) -> None:
    """Whatever is announced, nested, endless or elsewhere: the documented error comes, in time, and no code is run."""
    for data in parser.hostile():
        ending = watch.run(parse_of(parser), data, parser.documented)
        assert not ending.trouble, f"{data[:200]!r}\n{ending.trouble}\n{ending.detail}"
        assert not ending.events, f"{data[:200]!r}\n{ending.events}"


@each
@settings(
    max_examples=15, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
@given(random=st.randoms(use_true_random=False), times=st.integers(1, 4))
def test_mutated_inputs_are_read_or_refused(
    parser: Parser,
    watch: Watch,
    parse_of: Callable[[Parser], Callable[[bytes], object]],
    random: Random,
    times: int,
) -> None:
    """A valid input that is changed in a few places is read, or the documented error comes; no code is run."""
    seeds = parser.seeds()
    data = random.choice(seeds)
    for _ in range(times):
        data = parser.mutate(random, data, seeds)
    ending = watch.run(parse_of(parser), data, parser.documented)
    assert not ending.trouble, f"{data[:500]!r}\n{ending.trouble}\n{ending.detail}"
    assert not ending.events, f"{data[:500]!r}\n{ending.events}"


class _Breaks(Exception):
    pass


def _crash(data: bytes) -> None:
    raise _Breaks


def _endless(data: bytes) -> None:
    while True:
        pass


def _deep(data: bytes) -> None:
    raise ValueError("\ud800")


@pytest.mark.exam
@pytest.mark.parametrize(
    ("parse", "trouble"),
    [
        (_crash, "crash: _Breaks"),
        (_endless, "hang"),
        (_deep, "crash: the message of a ValueError cannot be printed"),
        (lambda data: [].append(int("x" * 3)), ""),
    ],
)
def test_the_watch_sees_trouble(parse: Callable[[bytes], object], trouble: str, watch: Watch) -> None:
    """What is not documented, does not end or cannot be printed is trouble; a documented error is none."""
    assert watch.run(parse, b"", (ValueError,)).trouble == trouble


def test_the_watch_sees_code(watch: Watch, tmp_path: Path) -> None:
    """Code that is run or imported, processes, and files outside of the scratch folder are events."""

    def parse(data: bytes) -> None:
        exec(data or "import antigravity_of_nobody")

    assert [event.split()[0] for event in watch.run(parse, b"", (ImportError,)).events] == [
        "compile",
        "exec",
        "import",
    ]
    elsewhere = "/var/tmp/cgins-fuzz-probe"
    code = f"__import__('os').system('true'); open({elsewhere!r}, 'w').close(); __import__('os').remove({elsewhere!r})"
    names = [event.split()[0] for event in watch.run(parse, code.encode(), ()).events]
    assert names == ["compile", "exec", "os.system", "open", "os.remove"]
    inside = f"open({str(tmp_path / 'x')!r}, 'w').close()"
    assert [event.split()[0] for event in watch.run(parse, inside.encode(), ()).events] == ["compile", "exec"]
