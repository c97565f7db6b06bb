"""Texts that the code of a kernel's exception makes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from pytest_cgins.building.loading import exceptions
from pytest_cgins.building.loading.exceptions import MAXIMUM_TEXT, is_stuck, kind_of, told
from pytest_cgins.core.errors import LaunchError
from pytest_cgins.run.worker import describe
from pytest_cgins.verify.probe_support.rerun import attempt


@pytest.fixture(autouse=True)
def _within_a_moment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The limit is short, and what it ended is over with the test."""
    monkeypatch.setattr(exceptions, "LIMIT_S", 0.2)
    monkeypatch.setattr(exceptions, "_stuck", [])
    ENDLESS.clear()
    ENDLESS.append(True)
    yield
    ENDLESS.clear()


ENDLESS: list[bool] = []


class Endless(Exception):
    def __str__(self) -> str:
        while ENDLESS:
            pass
        return ""


class EndlessWhat(LaunchError):
    what = property(lambda _: str(Endless()), lambda _, value: None)  # type: ignore[assignment]


class Text(str):
    __slots__ = ()

    def __len__(self) -> int:
        return 1

    def __getitem__(self, key: object) -> str:
        raise AssertionError("code of the kernel was run")


class Long(Exception):
    def __str__(self) -> str:
        return Text("x" * 30_000_000)


class Raising(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Named(type):
    @property
    def __name__(cls) -> str:
        return str(Endless())


class OfAMeta(Exception, metaclass=Named):
    pass


def chained() -> Exception:
    error = inner = Long()
    for _ in range(2):
        inner.__cause__ = Long()
        inner = inner.__cause__
    return error


@pytest.mark.parametrize("make", [Endless, lambda: EndlessWhat("x")])
def test_a_text_without_end_is_given_up(make: Callable[[], BaseException]) -> None:
    """Once; its process is not to be used again, and asks for no further one."""
    described = describe(make())
    assert described["message"] == "(its text could not be made: it took more than 0.2 s)"
    assert is_stuck()
    assert describe(LaunchError("ours", remedy="do it"))["message"] == "ours"
    assert told(Endless()) == "(its text could not be made: it took more than 0.2 s)"


def test_a_long_text_is_cut() -> None:
    """Also if its class denies its length; the traceback of a chain of them is cut as well."""
    exceptions.LIMIT_S = 60
    described = describe(chained())
    assert described["message"].startswith("x" * 1000)
    assert described["message"].endswith(f"... ({30_000_000 - MAXIMUM_TEXT} more characters)")
    assert len(described["trace"]) <= MAXIMUM_TEXT


def test_a_text_that_raises_is_told_so() -> None:
    """Also if it wants to end the process."""
    assert told(Raising()) == "(its text could not be made: SystemExit)"
    assert not is_stuck()


def test_the_class_s_own_code_does_not_name_it() -> None:
    """A property of its metaclass is not asked."""
    assert kind_of(OfAMeta()) == "OfAMeta"


def test_a_probe_that_runs_the_kernel_again_waits_no_longer() -> None:
    """What is raised then is cut to the same."""

    def run() -> list[object]:
        raise next(errors)

    errors = itertools.chain([Raising(), Endless()])
    _, error = attempt(run)  # type: ignore[arg-type]
    assert error is not None
    assert (error.kind, error.message) == ("Raising", "Raising: (its text could not be made: SystemExit)")
    _, error = attempt(run)  # type: ignore[arg-type]
    assert error is not None
    assert error.message.startswith("Endless: (its text could not be made: it took more")
