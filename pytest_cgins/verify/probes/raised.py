"""What a kernel raises when a probe runs it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pytest_cgins.building.loading.exceptions import kind_of, told
from pytest_cgins.verify.messages import RaisedError

_MAXIMUM_TEXT = 2000


_Result = TypeVar("_Result")


def attempt(run: Callable[[], _Result]) -> tuple[_Result | list[Any], RaisedError | None]:
    """Run, and give what it gives, or an empty list and what it raised."""
    try:
        return run(), None
    except BaseException as error:  # noqa: BLE001 - SystemExit from a kernel is its error, not ours
        kind, text = kind_of(error), told(error)
        return [], RaisedError(kind=kind, message=f"{kind}: {text}".strip()[:_MAXIMUM_TEXT])
