"""One request on its way to its answer, within a budget: whoever asks a provider asks by this."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pytest_cgins.core.errors import ProviderError
from pytest_cgins.regenerate.budget import Ledger
from pytest_cgins.regenerate.model import Answer, Request
from pytest_cgins.regenerate.provider import files
from pytest_cgins.regenerate.provider.base import Provider


class Inquiry:
    """A request and its place.

    Args:
        request: what is asked; with a shorter answer, where the budget allows no longer one.
        place: the folder where its answer will lie.
        ledger: counts what it takes.
        keep: writes a request that is new into its place.
        counts_earlier: whether an answer that an earlier process took counts here as well.
    """

    def __init__(
        self,
        request: Request,
        place: Path,
        ledger: Ledger,
        keep: Callable[[Request], object],
        *,
        counts_earlier: bool = True,
    ) -> None:
        self.request = request
        self.answer: Answer | None = None
        """None until it is there."""
        self._place = place
        self._ledger = ledger
        self._keep = keep
        self._counts_earlier = counts_earlier
        self._is_begun = False
        self._counts = True

    def ask(self, provider: Provider) -> Answer | None:
        """The answer, if it is there; the same may be asked again and again.

        Raises:
            BudgetError: its worst case does not fit into what is left.
            ProviderError: there will be none.
        """
        if not self._is_begun:
            self._begin()
        try:
            self.answer = provider.ask(self.request, self._place)
        except ProviderError:
            self._ledger.lose(self.request, files.taken_in(self._place))
            raise
        if self.answer is not None and self._counts:
            self._ledger.settle(self.request, self.answer)
        return self.answer

    def _begin(self) -> None:
        """Have the request in its place, and its worst case within the budget."""
        failure = files.failure_in(self._place)
        if not (self._place / files.REQUEST).exists():
            self.request = self._ledger.require(self.request)
            self._keep(self.request)
        elif failure is not None:
            # An earlier process asked in vain, and the remedy has been heeded meanwhile: it is asked anew.
            self.request = self._ledger.require(self.request)
            files.write_json(self._place / files.REQUEST, self.request)
            files.retract_failure(self._place)
        elif files.is_settled(self._place):
            self._counts = self._counts_earlier
        else:
            self._ledger.resume(self.request)
        self._is_begun = True
