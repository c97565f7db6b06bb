"""What is observed around everything that a kernel does in a worker: one object a request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


class Watch:
    """Watches a kernel while it is loaded, bound and run; what it saw is told as plain JSON by probe.

    Args:
        wanted: names of the probes that are switched on.
        request: the verification request: `kernel`, `device`, `import_root`, `op_calls` and so on.
    """

    def __init__(self, wanted: frozenset[str], request: Mapping[str, Any]) -> None:
        self._wanted = wanted
        self._request = request

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Around the kernel's import, or the loading of its library."""
        yield

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around one run."""
        yield

    def observed(self) -> dict[str, Any]:
        """Facts by probe, after the last run."""
        return {}
