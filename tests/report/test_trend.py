"""Trends of a history: what is compared with what, and how it is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports import report_of

from pytest_cgins.app import cli
from pytest_cgins.core import documents
from pytest_cgins.core.environment_key import hard_key, soft_key
from pytest_cgins.core.session_report import Environment, Evaluation
from pytest_cgins.report import history_file, trend_table
from pytest_cgins.report.history import Head, HistoryEntry, entries
from pytest_cgins.report.trend import Trends, trends

Make = Callable[..., Evaluation]
GPU = Environment(
    device="cuda",
    device_name="NVIDIA H200",
    python="3.11.2",
    torch="2.11",
    driver="580.65",
    clock_policy="default",
)
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.fixture
def entry(make_evaluation: Make) -> Callable[..., HistoryEntry]:
    """Makes an entry: day of the year, time, driver, device, case."""

    def make(
        day: int,
        kernel_ns: float,
        driver: str = "580.65",
        device: str = "NVIDIA H200",
        signature: str = "f32-8",
    ) -> HistoryEntry:
        environment = replace(GPU, driver=driver, device_name=device)
        one = make_evaluation(device="cuda:0", times_ns=(kernel_ns, 2000.0), signature=signature)
        report = report_of(one, environments=[environment], started_at=START + timedelta(days=day))
        (found,) = entries(report, Head(commit=f"{day:040x}", dirty=day % 2 == 1, branch="main"))
        return replace(found, config="cgins.yaml")

    return make


Entry = Callable[..., HistoryEntry]


def test_another_driver_begins_a_segment(entry: Entry) -> None:
    """The change is over the segment's own entries, and the break says what changed."""
    made = [entry(0, 1000.0), entry(1, 1010.0), entry(2, 1111.0, "581.10"), entry(3, 1111.0, "581.10")]
    (found,) = trends(made)
    assert [len(segment.entries) for segment in found.segments] == [2, 2]
    assert [segment.change for segment in found.segments] == [pytest.approx(1.01), 1.0]
    assert found.segments[0].soft_changes == found.segments[0].hard_changes == ()
    assert found.segments[1].soft_changes == ("driver 580.65 → 581.10",)
    assert found.segments[1].hard_changes == ()
    assert trend_table.break_line(found.segments[1]) == "── driver 580.65 → 581.10 ──"


def test_another_device_is_never_compared(entry: Entry) -> None:
    """Not even where the driver is the same; the break is a double line."""
    (found,) = trends([entry(0, 1000.0), entry(1, 3000.0, device="NVIDIA A100")])
    assert [segment.change for segment in found.segments] == [None, None]
    assert trend_table.break_line(found.segments[1]) == "══ device NVIDIA H200 → NVIDIA A100 ══"


def test_two_runners_in_turn_are_two_segments(entry: Entry) -> None:
    """Not one a run; the one that ran last comes last."""
    made = [entry(day, 1000.0 + day, device=f"GPU {day % 2}") for day in range(8)]
    (found,) = trends(made)
    assert [len(segment.entries) for segment in found.segments] == [4, 4]
    assert found.segments[-1].latest == made[-1]


def test_the_order_of_lines_does_not_matter(entry: Entry) -> None:
    """Pipelines end in another order than they began."""
    made = [entry(day, 1000.0 + 10 * day) for day in range(5)]
    assert trends(reversed(made)) == trends(made)


def test_entries_can_be_chosen(entry: Entry) -> None:
    """By case and by time; a change goes back as far as is asked for."""
    made = [entry(0, 500.0), entry(1, 1000.0), entry(2, 1100.0), entry(2, 7.0, signature="f16-4")]
    assert [one.case.rpartition("/")[2] for one in trends(made)] == ["f16-4", "f32-8"]
    (found,) = trends(made, case="*/f32-*")
    assert found.segments[0].change == pytest.approx(1100 / 750)
    assert trends(made, case="*/f32-*", last=1)[0].segments[0].change == pytest.approx(1.1)
    (found,) = trends(made, case="*/f32-*", since=START + timedelta(days=2))
    assert (len(found.segments[0].entries), found.segments[0].change) == (1, None)
    assert trends(made, case="nothing") == ()


def test_the_table_shows_the_break(entry: Entry) -> None:
    """One line a segment, the columns below each other, and the key that holds now."""
    made = [entry(0, 1000.0), entry(1, 1010.0), entry(2, 1111.0, "581.10"), entry(3, 1222.1, "581.10")]
    lines = trend_table.render(trends(made), last=10, colour=False).splitlines()
    assert lines[0] == "scale/cuda-cpp/tiny/f32-8  cgins.yaml"
    assert lines[1].split() == [
        "from",
        "to",
        "runs",
        "trend",
        "now",
        "last",
        "10",
        "of",
        "base",
        "of",
        "torch",
        "status",
        "commit",
    ]
    assert lines[2].split() == [
        "2026-01-01",
        "2026-01-02",
        "2",
        "▄▅",
        "1.01",
        "us",
        "+1.00%",
        "0.505",
        "PASSED",
        "0000000000*",
    ]
    assert lines[3] == "  ── driver 580.65 → 581.10 ──"
    assert lines[4].split()[3:7] == ["▁█", "1.22", "us", "+10.0%"]
    assert lines[2].index("PASSED") == lines[4].index("PASSED") == lines[1].index("status")
    assert lines[5].startswith("  device NVIDIA H200 · clocks default")
    assert lines[5].endswith(" · driver 581.10 · torch 2.11")
    assert "\x1b[" in trend_table.render(trends(made), last=10, colour=True)


def test_texts_of_the_file_cannot_command_a_terminal(entry: Entry) -> None:
    """A history is a file of a repository: escape codes, line breaks and markup are shown as they are."""
    hostile = replace(entry(0, 1.0), case="a\x1b[2J\n[red]b", config="\u202ec")
    text = trend_table.render(trends([hostile]), last=10, colour=False)
    assert text.startswith("a\\u001b[2J\\u000a[red]b  \\u202ec\n")
    assert "\x1b" not in text


@given(st.lists(st.floats(min_value=1e-3, max_value=1e12), min_size=1, max_size=50))
def test_bars_stand_for_values(values: list[float]) -> None:
    """One a value, up to a limit; higher ones for greater values."""
    shown = trend_table.bars(values)
    assert len(shown) == min(len(values), trend_table.SHOWN)
    heights = [trend_table.BARS.index(one) for one in shown]
    ordered = sorted(zip(values[-trend_table.SHOWN :], heights, strict=True))
    assert [height for _, height in ordered] == sorted(heights)


def test_noise_is_no_mountain() -> None:
    """A share of a percent stays in the middle; a tenth more goes from the bottom to the top."""
    assert set(trend_table.bars([1000.0, 1002.0, 998.0])) <= set("▄▅")
    assert trend_table.bars([1000.0, 1200.0]) == "▁█"


# ---- the command


@pytest.fixture
def path(entry: Entry, tmp_path: Path) -> Path:
    path = tmp_path / "h.jsonl"
    history_file.append(path, [entry(0, 1000.0), entry(1, 1010.0), entry(2, 1111.0, "581.10")])
    return path


def test_the_command_prints_tables(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the file that is named."""
    assert cli.main(["history", str(path)]) == 0
    out = capsys.readouterr().out
    assert "── driver 580.65 → 581.10 ──" in out
    assert out.splitlines()[1].split()[5:7] == ["last", "10"]


def test_the_command_prints_json(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the tables show, and all entries."""
    assert cli.main(["history", str(path), "--json", "--last", "3"]) == 0
    found = documents.load(Trends, capsys.readouterr().out)
    assert (found.version, found.last) == (1, 3)
    assert found.trends == trends(history_file.read(path).entries, last=3)


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (["--since", "2026-01-02"], 2),
        (["--since", "2026-01-02T00:00:01Z"], 1),
        (["--since", "2026-01-02T01:00:00+02:00"], 2),
        (["--since=99999d"], 3),
    ],
)
def test_runs_since_a_time(
    path: Path, capsys: pytest.CaptureFixture[str], options: list[str], count: int
) -> None:
    """A date, a time with or without a zone, or days."""
    assert cli.main(["history", str(path), "--json", *options]) == 0
    (trend,) = json.loads(capsys.readouterr().out)["trends"]
    assert sum(len(segment["entries"]) for segment in trend["segments"]) == count


def test_nothing_asked_for_is_exit_1(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With how much there was."""
    assert cli.main(["history", str(path), "--case", "nothing"]) == 1
    assert capsys.readouterr().err == f"cgins: {path}: none of 3 entries is asked for\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--since", "soon"], "'soon' is not a date like 2026-01-31, nor days like 30d"),
        (["--since", "1e99d"], "'1e99d' is not a date"),
        (["--since", "nand"], "'nand' is not a date"),
        (["--last", "0"], "'0' is not a number from 1 on"),
    ],
)
def test_wrong_arguments_are_named(
    path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    """With what is taken."""
    with pytest.raises(SystemExit):
        cli.main(["history", str(path), *options])
    assert said in capsys.readouterr().err


def test_a_damaged_file_is_a_clear_error(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With its line; a torn last one is a note."""
    with path.open("a") as file:
        file.write('{"version":1,"cgi')
    assert cli.main(["history", str(path)]) == 0
    assert capsys.readouterr().err == (
        f"cgins: {path}: line 4 is incomplete and ignored: the next run that appends removes it\n"
    )
    with path.open("a") as file:
        file.write("\n")
    assert cli.main(["history", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"cgins: {path}:4: not an entry of a history: ")
    assert said.endswith("→ restore the file from version control, or delete that line\n")


def test_a_file_that_is_not_there_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The default one too."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["history"]) == 2
    assert capsys.readouterr().err == (
        "cgins: cgins-history.jsonl: No such file or directory\n→ name the file that --cgins-history wrote\n"
    )


def test_keys_are_those_of_the_environment(entry: Entry) -> None:
    """A case adds its trace and how it was timed."""
    made = entry(0, 1.0)
    assert made.soft == soft_key(GPU)
    assert made.hard == hard_key(GPU, {"trace": "0" * 16, "cache": "warm", "method": "perf-counter"})


def test_a_page_draws_a_history(
    entry: Callable[..., HistoryEntry],
    make_evaluation: Make,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Runs of a case are in the details of that case; other formats draw none, and say so."""
    runs, file = tmp_path / "history.jsonl", tmp_path / "report.json"
    history_file.append(runs, [entry(1, 1000.0), entry(2, 900.0)])
    evaluation = make_evaluation(device="cuda:0", times_ns=(900.0, 2000.0), signature="f32-8")
    now = report_of(replace(evaluation, config="cgins.yaml"), environments=[GPU])
    file.write_text(documents.dump(now))
    assert cli.main(["report", str(file), "--format=html"]) == 0
    without = capfd.readouterr().out
    assert cli.main(["report", str(file), "--format=html", f"--history={runs}"]) == 0
    drawn = capfd.readouterr().out
    assert drawn.count("<svg") == without.count("<svg") + 1
    assert cli.main(["report", str(file), "--format=junit", f"--history={runs}"]) == 2
    assert "--history: the format junit has no plots" in capfd.readouterr().err
