"""Workers that serve the toys, and workers with the real services."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_cgins.run.pool import WorkerPool

HERE = Path(__file__).parent
TOYS = {
    "toy": "toys:Toy",
    "broken": "toys:BrokenAtStart",
    "leaves": "toys:LeavesAtStart",
    "loud": "toys:LoudAtStart",
    "absent": "toys:Absent",
}


@pytest.fixture
def pool(toy_path: dict[str, str]) -> Iterator[WorkerPool]:
    with WorkerPool(services=TOYS, env=toy_path) as pool:
        yield pool


@pytest.fixture(scope="session")
def toy_path() -> dict[str, str]:
    return {"PYTHONPATH": str(HERE), "CGINS_TOY": "blue"}


@pytest.fixture(scope="session")
def workers() -> Iterator[WorkerPool]:
    """Workers with the real services; importing torch takes them more than a second."""
    with WorkerPool() as pool:
        pool.warm(["verification", "timing"])
        yield pool
