"""What a terminal and a log show while kernels are regenerated, and the table at the end."""

from __future__ import annotations

import io
import os
import pty
import re
import threading
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from pytest_cgins.regenerate.attempt import Attempt, Result
from pytest_cgins.regenerate.budget import Spent, spent_by, total
from pytest_cgins.regenerate.conversation import Request, Usage
from pytest_cgins.regenerate.progress import (
    Board,
    Event,
    Progress,
    Stage,
    ended,
    fitted,
    plain,
    table,
)
from pytest_cgins.report.escape import visible
from tests.regenerate import journals

HOSTILE = "[bold red]x[/] \x1b[2Jü核\n::error:::smile:\u202e"


def event(target: str = "softmax-cpu-cpp", stage: Stage = "checking", attempt: int = 2, **more: str) -> Event:
    return Event(target=target, attempt=attempt, attempts=5, stage=stage, **more)


def seen(*events: Event, at_s: float = 0.0) -> Board:
    board = Board()
    for one in events:
        board.see(one, at_s)
    return board


def test_a_line_a_target() -> None:
    """Each target that runs has a line with attempt, stage and time, and the last line counts those that are done."""
    board = seen(
        event(), event("gelu-cuda-triton", "asking", 1), event("add-cpu-cpp", "done", 1, detail="accepted"),
        event("mul-cpu-cpp", "asking the helper", 3, detail="build-error"),
    )  # fmt: skip
    assert board.lines(100, 24, 75.0) == [
        "softmax-cpu-cpp   2 of 5  building and checking 1:15",
        "gelu-cuda-triton  1 of 5  asking the generator 1:15",
        "mul-cpu-cpp       3 of 5  asking the helper 1:15 (build-error)",
        "cgins: 1 of 4 kernels done",
    ]


def test_more_targets_than_lines() -> None:
    """What does not fit on the terminal is counted."""
    board = seen(*(event(f"k{index}-cpu-cpp") for index in range(30)))
    lines = board.lines(80, 10, 0.0)
    assert len(lines) == 9
    assert lines[-2] == "and 23 more"
    assert len(seen(*(event(f"k{index}") for index in range(8))).lines(80, 10, 0.0)) == 9


def test_what_changes() -> None:
    """The same event twice is one line of a log."""
    board = Board()
    assert board.see(event(), 0.0)
    assert not board.see(event(), 1.0)
    assert board.see(event(stage="accepting"), 2.0)
    assert board.see(event(stage="accepting", attempt=3), 3.0)
    assert board.see(event(stage="accepting", attempt=3, detail="x"), 3.0)


def test_lines_of_a_log() -> None:
    """A log has whole sentences."""
    assert plain(event()) == "cgins: softmax-cpu-cpp: attempt 2 of 5: building and checking"
    assert plain(event(stage="asking the helper", detail="crashed")).endswith("asking the helper (crashed)")
    assert (
        plain(event(stage="done", detail="accepted"))
        == "cgins: softmax-cpu-cpp: accepted after 2 of 5 attempts"
    )
    assert ended(event(stage="done", attempt=0, detail="stopped")) == "stopped before the first attempt"


@pytest.mark.parametrize("stage", get_args(Stage))
def test_every_stage_has_words(stage: Stage) -> None:
    """A target can be at any stage, in a log and in a terminal."""
    assert plain(event(stage=stage)).startswith("cgins: softmax-cpu-cpp: ")
    board = seen(event(stage=stage))
    assert any("softmax" in line for line in board.lines(100, 5, 0.0)) == (stage != "done")


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60), st.integers(0, 200), st.text(max_size=80), st.integers(1, 40))
def test_no_line_is_too_wide(name: str, width: int, detail: str, height: int) -> None:
    """Whatever names and reasons hold, no line is wider than the terminal, nor are there more than it has."""
    board = seen(event(name, detail=detail), event("a" + name, "accepting"), event("b" + name, "asking"))
    lines = board.lines(width, height, 10.0)
    assert all(cell_len(line) <= width for line in lines)
    assert all(visible(line) == line for line in lines)
    assert len(lines) <= max(2, height - 1)


@pytest.mark.parametrize(
    ("words", "width", "cut"),
    [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("核核", 3, "核…"), ("ab", 1, "…"), ("ab", 0, "")],
)
def test_cutting(words: str, width: int, cut: str) -> None:
    """Wide characters take two cells."""
    assert fitted(words, width) == cut


def test_no_terminal() -> None:
    """Where there is no terminal, changes are lines, without any control character and without markup."""
    out = io.StringIO()
    with Progress(Console(file=out, width=20)) as shown:
        for one in (
            event(stage="asking"),
            event(stage="asking"),
            event(HOSTILE),
            event(stage="done", detail="failed"),
        ):
            shown(one)
    lines = out.getvalue().splitlines()
    assert lines[0] == "cgins: softmax-cpu-cpp: attempt 2 of 5: asking the generator"
    assert lines[1].startswith(
        "cgins: [bold red]x[/] \\u001b[2Jü核\\u000a::error:::smile:\\u202e: attempt 2 of 5"
    )
    assert lines[2] == "cgins: softmax-cpu-cpp: failed after 2 of 5 attempts"
    assert len(lines) == 3


def test_a_dumb_terminal() -> None:
    """A terminal that cannot go back gets lines as well."""
    out = io.StringIO()
    with Progress(Console(file=out, force_terminal=True, width=80, _environ={"TERM": "dumb"})) as shown:
        shown(event())
    assert out.getvalue() == "cgins: softmax-cpu-cpp: attempt 2 of 5: building and checking\n"


def test_a_terminal() -> None:
    """On a real terminal the lines are rewritten in place, targets that are done stay above, and nothing else is left."""
    parent, child = pty.openpty()
    read: list[bytes] = []

    def drain() -> None:
        while True:
            try:
                data = os.read(parent, 65536)
            except OSError:
                return
            if not data:
                return
            read.append(data)

    reader = threading.Thread(target=drain)
    reader.start()
    with os.fdopen(child, "w", encoding="utf-8") as file:
        console = Console(file=file, width=90, height=10, _environ={"TERM": "xterm"}, legacy_windows=False)
        with Progress(console) as shown:
            shown(event())
            shown._live.refresh()
            shown(event(HOSTILE, "asking"))
            shown._live.refresh()
            shown(event(stage="done", detail="accepted"))
            shown._live.refresh()
    reader.join(5)
    os.close(parent)
    written = b"".join(read).decode()
    assert "softmax-cpu-cpp  2 of 5  building and checking 0 s" in written
    assert "\x1b[2J" not in written
    assert "\x1b[1A" in written
    # The end: the permanent line, then what clears the rest.
    assert written.count("cgins: softmax-cpu-cpp: accepted after 2 of 5 attempts") == 1
    tail = written.rpartition("cgins: 1 of 2 kernels done")[2]
    assert not re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\s", "", tail)


def test_an_error_leaves_a_clean_terminal() -> None:
    """When a run is broken off, the lines are gone and the cursor is there."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=60, _environ={"TERM": "xterm"})

    def broken_off() -> None:
        with Progress(console) as shown:
            shown(event())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    hidden, _, after = out.getvalue().rpartition("\x1b[?25h")
    assert "\x1b[?25l" in hidden
    assert "\x1b[2K" in after


def result(kernel: str, state: str, attempts: int = 1, **more: str) -> Result:
    made = tuple(
        Attempt(number=number + 1, goal="repair", outcome="failed", reason="", message="", seconds=10.0)
        for number in range(attempts)
    )
    return Result(target=journals.target(kernel), state=state, attempts=made, **more)


def spent(kernel: str, *usd: float | None, model: str = "m", tokens: int = 1000) -> dict[str, Spent]:
    """What answers of these prices have taken, by the target's name."""
    request = Request(id="r", role="generator", model=model, messages=(), max_tokens=9)
    usages = [Usage(prompt_tokens=tokens, cached_tokens=0, answer_tokens=234, usd=price) for price in usd]
    return {f"{kernel}-cpu-cpp": total(spent_by(request, usage, seconds=2.5) for usage in usages)}


def test_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row a target, with its answers and attempts, then its reason and its folder; a price that is missing is unknown."""
    monkeypatch.chdir(tmp_path)
    run = tmp_path / ".cgins/runs/1"
    (run / "b-cpu-cpp/FAILED").mkdir(parents=True)
    results = [
        result("a", "accepted", 1, proposal="proposals/a-cpu-cpp"),
        result("b", "failed", 5, why="no valid kernel in 5 attempts", remedy="give more"),
        result("c", "waiting", 0, why="for an answer"),
    ]
    taken = {
        **spent("a", 0.25, 0.5, tokens=41_000), **spent("b", 1.0, None), **spent("c", None, model="", tokens=1),
    }  # fmt: skip
    found = table([(result, taken[result.target.name]) for result in results], run, 80)
    assert found.splitlines() == [
        "kernel     outcome   attempts  tokens      cost   time",
        "a-cpu-cpp  accepted         1  82,468  0.75 USD   15 s",
        "b-cpu-cpp  failed           5   2,468   unknown   55 s",
        "c-cpu-cpp  waiting          0     235  0.00 USD  2.5 s",
        "a-cpu-cpp: proposal in .cgins/runs/1/proposals/a-cpu-cpp",
        "b-cpu-cpp: no valid kernel in 5 attempts → give more",
        "b-cpu-cpp: last failed source in .cgins/runs/1/b-cpu-cpp/FAILED",
        "c-cpu-cpp: for an answer",
    ]


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=100), st.text(max_size=300), st.integers(1, 200))
def test_the_table_fits_and_the_reason_is_whole(name: str, why: str, width: int) -> None:
    """Whatever names and reasons hold, the table fits, and the reason, which ends in the remedy, is one line."""
    ended_so = result(name, "stopped", why=why), Spent(prompt_tokens=123, unpriced=1, seconds=3.0)
    shown = table([ended_so], Path("/none"), width)
    *rows, reason = shown.split("\n") if why else [*shown.split("\n"), ""]
    name = f"{name}-cpu-cpp"
    assert all(cell_len(line) <= max(70, width) for line in rows)
    assert reason == (f"{visible(name)}: {visible(why)}" if why else "")


def test_markup_in_names() -> None:
    """Names and reasons are shown as they are; what controls a terminal is spelled out."""
    hostile = result(HOSTILE, "failed", why=HOSTILE), Spent(requests=1, seconds=51.0)
    found = table([hostile], Path("/none"), 200)
    assert "[bold red]x[/] \\u001b[2Jü核\\u000a::error:::smile:\\u202e" in found.splitlines()[1]
    assert "\x1b" not in found
    assert "1:01 min" in found
