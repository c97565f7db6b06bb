"""Workers that serve the toys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_cgins.execute.pool import WorkerPool

TOYS = {
    "toy": "toys:Toy",
    "broken": "toys:BrokenAtStart",
    "leaves": "toys:LeavesAtStart",
    "loud": "toys:LoudAtStart",
    "absent": "toys:Absent",
}


@pytest.fixture
def pool(toy_path: dict[str, str]) -> Iterator[WorkerPool]:
    with WorkerPool({"colour": "red"}, services=TOYS, env=toy_path) as pool:
        yield pool


@pytest.fixture(scope="session")
def toy_path() -> dict[str, str]:
    return {"PYTHONPATH": str(Path(__file__).parent), "CGINS_TOY": "blue"}
