"""`benchmarks/seed_abilities.py`: what it types and holds, and the committed page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.benchmarks import seed_abilities

PAGE = Path(seed_abilities.__file__).parent / "results" / "seed-abilities-2core.md"


def test_a_promise_that_is_not_kept_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """The promised line alone is shown; another line, or another end of the command, is an error with all that was printed."""
    kept = seed_abilities.Row("skill", ["$ echo one; echo $SERVER; echo three; exit 7\n= 7\n^http\n"], "")
    assert seed_abilities.kept("30", kept)
    command, line, code = kept.shown
    assert (command, code) == ("$ echo one; echo $SERVER; echo three; exit 7", "(exit code 7)")
    assert line.startswith("http://127.0.0.1:")
    for step in ("$ echo one\n^two$\n", "$ echo one; exit 1\n^one$\n"):
        capsys.readouterr()
        assert not seed_abilities.kept("30", seed_abilities.Row("skill", [step], ""))
        assert capsys.readouterr().err.startswith("one\n")


def test_the_page_is_that_of_the_transcripts() -> None:
    """Each command stands in its row, with every line that was promised of it."""
    page = PAGE.read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (\w+) (.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    rows = seed_abilities.rows()
    assert list(sections) == list(rows)
    for name, row in rows.items():
        commands = {
            part.partition("\n")[0]: part
            for part in re.split(r"^(?=\$ )", sections[name], flags=re.MULTILINE)
        }
        for step in row.steps:
            command, *promised = [line for line in step.splitlines() if line.strip()] or ["#"]
            for one in promised if command.startswith("$ ") else ():
                told = commands[command].replace(command, "", 1)
                assert one.startswith("= ") or re.search(one, told, re.MULTILINE), (name, command, one)
        assert row.on_a_gpu in sections[name]


@pytest.mark.exam
def test_a_row_is_run() -> None:
    """Its commands are those of users, in a project of their own."""
    row = seed_abilities.rows()["2"]
    assert seed_abilities.kept("2", row)
    assert any("ATen: aten.gelu.default×1" in line for line in row.shown)
