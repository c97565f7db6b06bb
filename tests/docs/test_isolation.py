"""sandbox.md against the code."""

from __future__ import annotations

import re

from tables import document, rows, sections

from pytest_cgins.core.errors import WorkerError
from pytest_cgins.core.secrets import HARMLESS_NAMES, SECRET_NAMES
from pytest_cgins.run.early_verdict import lost_by
from pytest_cgins.run.limits import Limits
from pytest_cgins.run.output import TAIL_BYTES

TEXT = document("sandbox.md")


def test_the_patterns_are_those_of_the_code() -> None:
    """Every pattern of secrets is listed, and no other."""
    paragraphs = sections(TEXT)["Secrets"].strip().split("\n\n")
    listed, spared = (re.findall(r"`([^`]+)`", paragraph) for paragraph in paragraphs[1:3])
    assert tuple(listed) == SECRET_NAMES
    assert tuple(spared) == HARMLESS_NAMES


def test_every_row_has_the_status_that_a_worker_s_loss_gets() -> None:
    """The table's reasons exist, and their statuses are those of verdicts."""
    table = list(rows(sections(TEXT)["What can happen"]))
    assert len(table) > 10
    for reasons, status, _ in table:
        for reason in re.findall(r"`([^`]+)`", reasons):
            assert f"`{lost_by(WorkerError('', fault=reason)).verdict.status.value}`" == status, reason


def test_limits_are_those_of_the_code() -> None:
    """Bytes of output, processes, threads and the part of the output that is kept."""
    limits = Limits(memory_bytes=1)
    for number in (
        f"{limits.output_bytes // 2**20} MiB",
        f"{limits.processes} processes",
        f"{limits.threads} threads",
        f"{TAIL_BYTES // 1024} KiB",
    ):
        assert number in TEXT
