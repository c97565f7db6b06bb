"""building.md: its project is built, its commands print what it quotes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tables import document, rows, sections
from walk import blocks, run

from pytest_cgins.app import cli
from pytest_cgins.core.case import Contract

TEXT = document("building.md")


def test_every_step_works_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The document's project builds in a new cache, and each command prints what is quoted below it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CGINS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CGINS_CUDA_ARCHS", "sm_75")
    ran = run(TEXT, capfd)
    assert [line.split()[1] for line in ran] == ["build", "build", "build", "export"]


def test_an_error_reads_as_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The misspelt line is refused by the compiler's own words with file, line and a pointer to the log."""
    monkeypatch.chdir(tmp_path)
    for block in blocks(TEXT):
        if block.file:
            Path(block.file).parent.mkdir(exist_ok=True)
            Path(block.file).write_text(block.text)
    file = Path("kernels/scale.cpp")
    file.write_text(file.read_text().replace("T(cgins::data<T>(input)", "T(cgins::data<T>(inptu)"))
    assert cli.main(["build", "--device", "cpu"]) == 1
    printed = capfd.readouterr().err
    quoted = next(block.text for block in blocks(TEXT) if block.text.startswith("scale/cpp: g++ refused"))
    first, *_, last = quoted.splitlines()
    assert first in printed
    assert "kernels/scale.cpp:8:49: error: 'inptu' was not declared in this scope" in printed
    head, _, tail = last.partition("…")
    assert head in printed
    assert re.sub(r"\w+\.log", "", tail).rpartition(";")[2] in printed


def test_contracts_are_all_there() -> None:
    """The table names every contract of the model."""
    named = {re.findall(r"`([\w-]+)`", row[0])[0] for row in rows(sections(TEXT)["Which contract"])}
    assert named == set(Contract.__args__)
