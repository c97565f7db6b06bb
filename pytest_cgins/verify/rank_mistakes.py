"""Answers of common mistakes of ranks that compute together, and what tells them from each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pytest_cgins.core.bitwise import as_real
from pytest_cgins.core.text import numbered
from pytest_cgins.core.verdict import Check, Reason
from pytest_cgins.verify.diagnosis import Answered
from pytest_cgins.verify.probe_verdicts import DeviatingAnswer, ProbeResults
from pytest_cgins.verify.probes.ranks import NAME, REMEDIES
from pytest_cgins.verify.rank_group import RankGroup

_NEAR = {torch.float16: 2e-3, torch.bfloat16: 2e-2}
_NEAR_DEFAULT = 1e-4
"""How near an answer is to a mistake's that is taken for one, over the greatest magnitude."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """An answer that a common mistake gives on this rank."""

    words: str
    answer: Sequence[Tensor]
    reason: Reason = Reason.REFERENCE_MISMATCH
    """What it is called."""


@dataclass(frozen=True, slots=True)
class RankedAnswers:
    """What else is known of the answers of one rank."""

    group: RankGroup
    mistakes: dict[str, tuple[Mistake, ...]]
    """By set."""
    alike: dict[str, tuple[bool, ...]]
    """By set, of each output, whether torch's is the same on all ranks, bit for bit."""

    def explained(self, check: Check, got: Sequence[Tensor]) -> Check:
        """A failed check with the mistake that gives this answer, if there is one."""
        mistake = None if check.passed else self.mistake(check.inputs, got)
        if mistake is None:
            return check
        words, arrow, remedy = check.message.partition("\n→")
        if mistake.reason in REMEDIES:
            arrow, remedy = "\n→", f" {REMEDIES[mistake.reason]}"
        told = f"{words.rstrip('.')}. Most likely {mistake.words}{arrow}{remedy}"
        return replace(check, message=told, reason=mistake.reason)

    def mistake(self, name: str, got: Sequence[Tensor]) -> Mistake | None:
        """The mistake that gives an answer to a set; None if none does."""
        found = (one for one in self.mistakes.get(name, ()) if gives(one, got))
        return next(found, None)

    def add_to(
        self, results: ProbeResults, seconds: Iterable[DeviatingAnswer], answered: Sequence[Answered]
    ) -> None:
        """Answers that deviate from first ones, which may be made of numbers of the call before; and how ranks differ."""
        for second in seconds:
            mistake = self.mistake(second.expected.name, [*map(as_real, second.given)])
            stale = mistake is not None and mistake.reason is Reason.STALE_ANSWER
            results.add_rerun(replace(second, reused=stale))
        results.trip(NAME, self._disagreement(answered), Reason.RANKS_DISAGREE)

    def _disagreement(self, answered: Sequence[Answered]) -> str:
        """How right answers differ between ranks where torch's do not; "" if they do not. All ranks ask together."""
        if self.group.greatest(not all(one.passed for one in answered)):
            return ""
        for one in answered:
            name = one.inputs.expected.name
            for index, (tensor, alike) in enumerate(zip(one.got, self.alike[name], strict=True)):
                others = unlike_first(self.group.gather(tensor))
                if alike and others:
                    return (
                        f"output {index} on {name} inputs is within the tolerance on each rank, and has other bits on {numbered('rank', others)} "
                        f"than on rank 0; torch's is the same on all\n→ {REMEDIES[Reason.RANKS_DISAGREE]}"
                    )
        return ""


def unlike_first(everyone: Sequence[Tensor]) -> list[int]:
    """Ranks whose bytes are not those of the first."""
    return [rank for rank, theirs in enumerate(everyone) if not torch.equal(theirs, everyone[0])]


def gives(mistake: Mistake, got: Sequence[Tensor]) -> bool:
    """Whether an answer is that of a mistake."""
    if len(got) != len(mistake.answer):
        return False
    for given, wrong in zip(got, mistake.answer, strict=True):
        if given.shape != wrong.shape:
            return False
        ours, theirs = given.to(torch.float64).cpu(), as_real(wrong).to(torch.float64).cpu()
        near = _NEAR.get(given.dtype, _NEAR_DEFAULT) * float(theirs.abs().max()) if theirs.numel() else 0.0
        if not torch.allclose(ours, theirs, rtol=0.0, atol=near):
            return False
    return True
