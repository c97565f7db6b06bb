"""Proposals: an accepted candidate as a folder, written by the run and read by whoever publishes it.

proposal.json   Proposal
patch.diff      what `git apply` takes
files/PATH      the new contents
evidence.json   SessionReport of the acceptance
report.md       for people; nothing reads it
"""

from __future__ import annotations

from pytest_cgins.regenerate.proposal.proposal import PROPOSAL_VERSION, Proposal, title_of
from pytest_cgins.regenerate.proposal.read import Contents, read
from pytest_cgins.regenerate.proposal.write import write

__all__ = ["PROPOSAL_VERSION", "Contents", "Proposal", "read", "title_of", "write"]
