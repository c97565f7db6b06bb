"""What reading a trace needs of a pack, whether it is on disk or still being written."""

from __future__ import annotations

from typing import Protocol

from pytest_cgins.core.model import Blob


class BlobSource(Protocol):
    """Where the bytes of blobs come from."""

    def read(self, blob: Blob) -> bytes:
        """The `nbytes` bytes of a blob."""
        ...
