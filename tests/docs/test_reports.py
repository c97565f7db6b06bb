"""reports.md against what the program does."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from reports import report_of
from tables import document, rows, sections
from timings import compared, measured

from pytest_cgins.core.errors import MergeError
from pytest_cgins.core.session_report import Evaluation, Shard
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.report import formats, junit, markdown, merge, pull_request_comment
from pytest_cgins.report.html import page
from pytest_cgins.report.html.markup import TEXT_LENGTH
from pytest_cgins.report.merge import Part

TEXT = document("reports.md")


def test_formats_are_those_of_the_program() -> None:
    """Each has its row, and the limits are those that hold."""
    table = {row[0].strip("`"): row for row in rows(sections(TEXT)["Formats"])}
    assert list(table) == list(formats.FORMATS)
    assert "1 MiB" in table["markdown"][2]
    assert markdown.STEP_SUMMARY_LIMIT_NBYTES == 2**20
    assert f"{pull_request_comment.COMMENT_LIMIT_NBYTES:,} bytes" in table["comment"][2]


def test_properties_that_are_shown_are_written(make_evaluation: Callable[..., Evaluation]) -> None:
    """Each name of the example is one of a slower case's; so are those of the suite."""
    test = compared("base", [0.08] * 30)
    timing = measured(test, again=[test])
    one = make_evaluation(Status.SLOWER, reason=Reason.SLOWER_THAN_BASE, timing=timing)
    from pytest_cgins.gate import correctness_verdict, timing_verdict

    assert one.correctness is not None
    numbers = correctness_verdict.decide(one.correctness, timing).numbers | timing_verdict.timing_numbers(
        timing
    )
    one = replace(one, verdict=replace(one.verdict, numbers=numbers))
    report = replace(report_of(one), base_revision="1a2b")
    shown = re.findall(r"\[\[PROPERTY\|(\w+)=", TEXT)
    assert len(shown) > 5
    assert set(shown) <= set(junit.properties(one, report))
    text = junit.render(report)
    assert all(
        f'<property name="{name}"' in text for name in ("seed", "base_revision", "strict", "environment_1")
    )


def test_the_message_of_a_missing_shard_is_the_programs(make_evaluation: Callable[..., Evaluation]) -> None:
    """Word by word, up to the remedy."""
    parts = [
        Part(
            name=f"{'abcd'[number - 1]}.json",
            report=replace(
                report_of(make_evaluation(signature=str(number))), shard=Shard(number=number, count=4)
            ),
        )
        for number in (1, 2, 4)
    ]
    with pytest.raises(MergeError) as error:
        merge.merged(parts)
    assert f"cgins: {error.value.what}\n" in TEXT


def test_limits_are_those_of_the_page() -> None:
    """Rows that are shown at first, in the script as in the style sheet, and the length of a text."""
    flat = " ".join(TEXT.split())
    folder = Path(page.__file__).parent
    rows = re.search(r"MOST_ROWS = (\d+);", (folder / "report.js").read_text())
    assert rows is not None
    assert f"The first {rows[1]} are shown" in flat
    assert f"nth-child(n + {int(rows[1]) + 1})" in (folder / "style.css").read_text()
    assert f"longer than {TEXT_LENGTH:,} characters" in flat
