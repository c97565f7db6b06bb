"""Which parameters the tests of this run have, so that a fixture makes no more than they ask of it."""

from __future__ import annotations

from typing import Any

import pytest


def selected(request: pytest.FixtureRequest, parameter: str) -> list[Any]:
    """Values of a parameter, each once, in the tests of a file that run and use the fixture that asks."""
    users = [
        item for item in request.session.items if request.fixturename in getattr(item, "fixturenames", ())
    ]
    of_file = [getattr(item, "callspec", None) for item in users if item.path == request.path]
    return [*dict.fromkeys(call.params[parameter] for call in of_file if call and parameter in call.params)]
