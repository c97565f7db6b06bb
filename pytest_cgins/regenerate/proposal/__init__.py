"""Proposals: an accepted candidate as a folder, written by the run and read by whoever publishes it.

proposal.json   Proposal
patch.diff      what `git apply` takes
files/PATH      the new contents
evidence.json   SessionReport of the acceptance
report.md       for people; nothing reads it
"""

from __future__ import annotations

from typing import Any

from pytest_cgins.core import documents
from pytest_cgins.regenerate.proposal.proposal import PROPOSAL_VERSION, Proposal, title_of
from pytest_cgins.regenerate.proposal.read import Contents, read
from pytest_cgins.regenerate.proposal.write import write

__all__ = ["PROPOSAL_VERSION", "Contents", "Proposal", "proposal_schema", "read", "title_of", "write"]


def proposal_schema() -> dict[str, Any]:
    """JSON Schema of proposal.json, as published in `pytest_cgins/schemas/proposal-1.json`."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **documents.json_schema(Proposal)}
