"""What tests of regeneration share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.regenerate.tiny_server import Serving, serving


@pytest.fixture(scope="session")
def third_party_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """`transformers serve` with a tiny model of random weights; has `base_url` and `model`, and wants no key."""
    for package in ("fastapi", "uvicorn", "accelerate", "transformers", "tokenizers"):
        pytest.importorskip(package)
    with serving(tmp_path_factory.mktemp("third-party")) as server:
        yield server
