"""Ctrl-C while a run waits."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from pytest_cgins.regenerate.run_setup import interrupts


@pytest.fixture(autouse=True)
def python_handles_it() -> Iterator[None]:
    """As it does, but in a process that was started with SIGINT ignored, such as a shell's in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Finalized:
    """Gets SIGINT in its finalizer, where Python drops what is raised."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_python_drops_is_raised_at_the_next_look() -> None:
    """Once a finalizer has swallowed it."""
    with interrupts() as check:
        check()
        Finalized()
        with pytest.raises(KeyboardInterrupt):
            check()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_elsewhere_it_comes_at_once() -> None:
    """As without it."""
    with interrupts(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_who_handles_it_already_goes_on_doing_so() -> None:
    """A handler of others stays."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts() as check:
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            signal.raise_signal(signal.SIGINT)
            check()
    finally:
        signal.signal(signal.SIGINT, before)
