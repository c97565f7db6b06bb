"""What every provider of answers can do."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from pytest_cgins.regenerate.model import Answer, Request


class Provider(Protocol):
    """Answers requests. Each has a *place*, a folder of the journal, where its answer is kept for good."""

    def ask(self, request: Request, place: Path) -> Answer | None:
        """The answer if it is there, None while it is under way. The same place may be asked again and again.

        Args:
            request: what is asked.
            place: a folder that is there and has the request as `request.json`.

        Raises:
            ProviderError: there will be no answer.
        """
        ...

    def wait(self, timeout_s: float) -> bool:
        """Wait until something may have changed, at most so long.

        Returns:
            False if answers come by hand: the run is to stop, and to be resumed when they are there.
        """
        ...

    def close(self) -> None:
        """Ask for nothing more. What is under way is not taken back."""
        ...
