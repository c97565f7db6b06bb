"""Doing again what failed for a moment: the network, the server, or a limit on how much is asked of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from pytest_cgins.core.errors import GitHubError
from pytest_cgins.core.waiting import Wait

T = TypeVar("T")
_log = logging.getLogger(__name__)


def retried(
    awaited: str, request: Callable[[], T], pause_s: Callable[[GitHubError, int], float | None], tries: int
) -> T:
    """Do something, `tries` times at most, and give what it returns.

    Args:
        awaited: what is waited for between two tries, for people.
        request: raises `GitHubError` where it fails.
        pause_s: seconds until the next try, by the error and the number of tries so far; None for no other.
        tries: how often it is done at most.

    Raises:
        GitHubError: of the last try.
    """
    with Wait(awaited) as wait:
        for tried in range(1, tries):
            try:
                return request()
            except GitHubError as error:
                pause = pause_s(error, tried)
                if pause is None:
                    raise
                _log.info("%s; again in %g s", error.what, pause)
                wait.sleep(pause, f"try {tried} of {tries}: {error.what}; again in {pause:g} s")
        return request()
