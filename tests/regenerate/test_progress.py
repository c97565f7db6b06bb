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

from pytest_cgins.regenerate.budget import Spent, spent_by, total
from pytest_cgins.regenerate.model import Attempt, Request, Result, Usage
from pytest_cgins.regenerate.progress import (
    Board,
    Event,
    Progress,
    Row,
    Stage,
    ended,
    fitted,
    plain,
    rows,
    text,
)
from pytest_cgins.report.escape import visible
from tests.regenerate import journals

SPENT = Spent(requests=3, prompt_tokens=41_000, answer_tokens=203, usd=0.42, seconds=186.0)
HOSTILE = "[bold red]x[/] \x1b[2Jü核\n::error:::smile:\u202e"


def event(target: str = "softmax-cpu-cpp", stage: Stage = "checking", attempt: int = 2, **more: str) -> Event:
    return Event(target=target, attempt=attempt, attempts=5, stage=stage, **more)


def seen(*events: Event, at_s: float = 0.0) -> Board:
    board = Board()
    for one in events:
        board.see(one, at_s)
    return board


def test_a_line_a_target() -> None:
    """Each target that runs has a line with attempt, stage and time, and the last line has what was spent."""
    board = seen(
        event(), event("gelu-cuda-triton", "asking", 1), event("add-cpu-cpp", "done", 1, detail="accepted"),
        event("mul-cpu-cpp", "asking the helper", 3, detail="build-error"),
    )  # fmt: skip
    assert board.lines(100, 24, 75.0, SPENT) == [
        "softmax-cpu-cpp   2 of 5  building and checking 1:15",
        "gelu-cuda-triton  1 of 5  asking the generator 1:15",
        "mul-cpu-cpp       3 of 5  asking the helper 1:15 (build-error)",
        "cgins: 1 of 4 kernels done, 41,203 tokens, 0.42 USD, 3.1 min",
    ]


def test_cost_unknown() -> None:
    """Without a price the money is said to be unknown."""
    spent = Spent(requests=1, prompt_tokens=10, unpriced=1)
    assert seen(event()).lines(100, 24, 0, spent)[-1] == (
        "cgins: 0 of 1 kernel done, 10 tokens, cost unknown, 0.0 min"
    )
    assert seen(event()).lines(100, 24, 0, None)[-1] == "cgins: 0 of 1 kernel done"


def test_more_targets_than_lines() -> None:
    """What does not fit on the terminal is counted."""
    board = seen(*(event(f"k{index}-cpu-cpp") for index in range(30)))
    lines = board.lines(80, 10, 0.0, SPENT)
    assert len(lines) == 9
    assert lines[-2] == "and 23 more"
    assert len(seen(*(event(f"k{index}") for index in range(8))).lines(80, 10, 0.0, SPENT)) == 9


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
    assert any("softmax" in line for line in board.lines(100, 5, 0.0, SPENT)) == (stage != "done")


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60), st.integers(0, 200), st.text(max_size=80), st.integers(1, 40))
def test_no_line_is_too_wide(name: str, width: int, detail: str, height: int) -> None:
    """Whatever names and reasons hold, no line is wider than the terminal, nor are there more than it has."""
    board = seen(event(name, detail=detail), event("a" + name, "accepting"), event("b" + name, "asking"))
    lines = board.lines(width, height, 10.0, SPENT)
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
        with Progress(console, spent=lambda: SPENT) as shown:
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
    tail = written.rpartition("0.42 USD, 3.1 min")[2]
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


def test_rows(tmp_path: Path) -> None:
    """Tokens, money and time of a target are those of its answers and attempts; a price that is missing is unknown."""
    (tmp_path / "b-cpu-cpp/FAILED").mkdir(parents=True)
    taken = {**spent("a", 0.25, 0.5), **spent("b", 1.0, None), **spent("c", None, model="")}
    found = rows(
        [
            result("a", "accepted", 1, proposal="proposals/a-cpu-cpp"),
            result("b", "failed", 5, why="no valid kernel in 5 attempts"),
            result("c", "waiting", 0, why="for an answer"),
        ],
        lambda target: taken[target.name],
        tmp_path,
    )
    assert found == (
        Row(target="a-cpu-cpp", outcome="accepted", attempts=1, tokens=2468, usd=0.75, seconds=15.0,
            where=str(tmp_path / "proposals/a-cpu-cpp")),
        Row(target="b-cpu-cpp", outcome="failed", attempts=5, tokens=2468, usd=None, seconds=55.0,
            why="no valid kernel in 5 attempts", where=str(tmp_path / "b-cpu-cpp/FAILED")),
        Row(target="c-cpu-cpp", outcome="waiting", attempts=0, tokens=1234, usd=0.0, seconds=2.5, why="for an answer"),
    )  # fmt: skip


def test_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row a target, then its reason and its folder."""
    monkeypatch.chdir(tmp_path)
    run = tmp_path / ".cgins/runs/1"
    (run / "b-cpu-cpp/FAILED").mkdir(parents=True)
    results = [
        result("a", "accepted", 1, proposal="proposals/a-cpu-cpp"),
        result("b", "failed", 5, why="no valid kernel in 5 attempts"),
    ]
    taken = {**spent("a", 0.25, tokens=41_000), **spent("b", None)}
    found = text(rows(results, lambda target: taken[target.name], run), 80)
    assert found.splitlines() == [
        "kernel     outcome   attempts  tokens      cost  time",
        "a-cpu-cpp  accepted         1  41,234  0.25 USD  12 s",
        "b-cpu-cpp  failed           5   1,234   unknown  52 s",
        "a-cpu-cpp: proposal in .cgins/runs/1/proposals/a-cpu-cpp",
        "b-cpu-cpp: no valid kernel in 5 attempts",
        "b-cpu-cpp: last failed source in .cgins/runs/1/b-cpu-cpp/FAILED",
    ]


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=100), st.text(max_size=300), st.integers(1, 200))
def test_the_table_fits_and_the_reason_is_whole(name: str, why: str, width: int) -> None:
    """Whatever names and reasons hold, the table fits, and the reason, which ends in the remedy, is one line."""
    row = Row(target=name, outcome="accepted", attempts=1, tokens=123, usd=None, seconds=3.0, why=why)
    *table, reason = text([row], width).split("\n") if why else [*text([row], width).split("\n"), ""]
    assert all(cell_len(line) <= max(70, width) for line in table)
    assert reason == (f"{visible(name)}: {visible(why)}" if why else "")


def test_markup_in_names() -> None:
    """Names and reasons are shown as they are; what controls a terminal is spelled out."""
    row = Row(
        target=HOSTILE, outcome="failed", attempts=1, tokens=1, usd=0.0, seconds=61.0, why=HOSTILE, where="/x"
    )
    found = text([row], 200)
    assert "[bold red]x[/] \\u001b[2Jü核\\u000a::error:::smile:\\u202e" in found.splitlines()[1]
    assert "\x1b" not in found
    assert "1:01 min" in found
