"""timing.md on running in parallel against the code."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest
from tables import document, rows, sections

from pytest_cgins.app.session import pinning
from pytest_cgins.core import waiting
from pytest_cgins.core.errors import InfrastructureError
from pytest_cgins.timing import lock

TEXT = document("timing.md")
QUOTED = re.findall(r"```text\n(.*?)```", TEXT.partition("## Running in parallel")[2], re.DOTALL)


@pytest.mark.parametrize(("holds", "times", "verifies"), list(rows(sections(TEXT)["Who may use a device"])))
def test_the_table_says_what_locks_do(tmp_path: Path, holds: str, times: str, verifies: str) -> None:
    """Each cell, tried with two processes' worth of locks: a second thread's."""
    methods = {"times": lock.timing, "verifies": lock.verifying}
    found: list[str] = []

    def attempt(name: str) -> None:
        try:
            with methods[name]("cpu", wait_s=0, folder=tmp_path):
                found.append("yes")
        except InfrastructureError:
            found.append("no")

    with methods[holds.strip("*")]("cpu", wait_s=1, folder=tmp_path):
        for name in methods:
            thread = Thread(target=attempt, args=(name,))
            thread.start()
            thread.join()
    assert found == [times, verifies]


def test_the_message_reads_as_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads make the document's error, but for numbers, names and times."""
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw1")
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "cgins.yaml::relu/cpp/tiny/f32-4x8-0001 (call)")
    told: list[str] = []

    def attempt() -> None:
        try:
            with lock.timing("cpu", wait_s=0.01, folder=tmp_path):
                pass
        except InfrastructureError as error:
            told.append(str(error))

    with lock.timing("cpu", wait_s=1, folder=tmp_path):
        thread = Thread(target=attempt)
        thread.start()
        thread.join()

    assert _plain(told[0]) == _plain(QUOTED[0])


@pytest.mark.exam
def test_waits_read_as_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Three waits for a device that two threads want make the document's lines, but for numbers, names and times."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    waiting.forget()

    def wait() -> None:
        for seconds in (2.3, 0.1, 0.1):
            with suppress(InfrastructureError), lock.timing("cpu", wait_s=seconds, folder=tmp_path):
                pass

    with lock.timing("cpu", wait_s=1, folder=tmp_path):
        thread = Thread(target=wait)
        thread.start()
        thread.join()
    waiting.sum_up()
    lines = [f"cgins: {record.message}" for record in caplog.records if record.name == "pytest_cgins"]
    assert _plain("\n".join(lines)) == _plain(QUOTED[2])


def _plain(text: str) -> str:
    text = re.sub(r"process \d+ of \S+", "process N of HOST", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d", "THEN", text)
    text = re.sub(r"waited \d+ s", "waited N s", text)
    return re.sub(r"after waiting [\d.]+ s:", "after waiting N s:", text).strip()


def test_the_header_reads_as_quoted() -> None:
    """Three workers on two GPUs, as the document shows them."""
    gpus = re.findall(r"GPU-[0-9a-f-]{36}", QUOTED[1])
    lines = pinning.told(["gw0", "gw1", "gw2"], environ={}, listing=lambda: tuple((gpu, ()) for gpu in gpus))
    assert lines == QUOTED[1].strip().splitlines()


def test_names_are_those_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable, and the folder that is used without it."""
    assert f"{lock.FOLDER_VARIABLE}=/" in TEXT
    monkeypatch.delenv(lock.FOLDER_VARIABLE)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with lock.timing("cpu", wait_s=1):
        (folder,) = tmp_path.iterdir()
    assert folder.name == f"cgins-{os.getuid()}"
    assert "`cgins-UID`" in TEXT
