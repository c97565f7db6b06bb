"""Python's parser in several threads."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytest_cgins.core import syntax

DEEP = "x = " + "-" * 80 + "1\n"
WIDE = "def f(a):\n    return [a, {'b': a}, lambda c: c + a]\n" * 40


class Ended:
    """What garbage collection ends in the middle of whatever else is done, and where threads then take turns."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        for _ in range(50):
            pass


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads that take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.exam
@pytest.mark.usefixtures("restless")
def test_threads_parse_side_by_side() -> None:
    """Each gets the tree of its own text, however deep the others' are."""

    def lines(text: str) -> int:
        for _ in range(20):
            Ended()
        return len(syntax.module(text).body)

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lines, [DEEP, WIDE] * 400)) == [1, 40] * 400


def test_a_text_that_is_not_python_lets_the_next_be_parsed() -> None:
    """What a text raises is the parser's own, with the file's name, and holds up nobody."""
    with pytest.raises(SyntaxError) as raised:
        syntax.module("def", "some.py")
    assert raised.value.filename == "some.py"
    assert len(syntax.module("a = 1\nb = 2\n").body) == 2
    with pytest.raises(SyntaxError):
        syntax.expression("a = 1")


@pytest.mark.exam
def test_a_child_of_a_process_that_parses_can_parse() -> None:
    """A fork does not take along the lock of a thread that is not in the child."""
    stop = threading.Event()

    def parse() -> None:
        while not stop.is_set():
            syntax.module(WIDE)

    thread = threading.Thread(target=parse)
    thread.start()
    try:
        for _ in range(5):
            child = os.fork()
            if not child:
                syntax.module(DEEP)
                os._exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    finally:
        stop.set()
        thread.join()
