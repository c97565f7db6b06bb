"""Words for the ends of processes."""

from __future__ import annotations

import signal

import pytest

from pytest_cgins.execute.exits import describe_exit


@pytest.mark.parametrize(
    ("returncode", "words", "remedy"),
    [
        (0, "exited with code 0 without an answer", "exit()"),
        (3, "exited with code 3 without an answer", "exit()"),
        (-signal.SIGSEGV, "was killed by SIGSEGV (segmentation fault)", "index arithmetic"),
        (-signal.SIGABRT, "was killed by SIGABRT (abort)", "assertion"),
        (-signal.SIGKILL, "was killed by SIGKILL (killed from outside)", "out of memory"),
        (-signal.SIGUSR1, "was killed by SIGUSR1 (User defined signal 1)", "output"),
        (-200, "was killed by signal 200", "output"),
        (None, "closed its connection and lived on, and was killed", "descriptors"),
    ],
)
def test_every_end_has_words_and_a_remedy(returncode: int | None, words: str, remedy: str) -> None:
    """Exit codes and signals are told apart, by name where they have one."""
    described = describe_exit(returncode)
    assert described[0] == words
    assert remedy in described[1]
