"""Verdicts of earlier runs: lines, files of them, and places for these."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.core import session_report
from pytest_cgins.core.errors import VerdictStoreError
from pytest_cgins.core.verdict import Probe, Reason, Status
from pytest_cgins.gate import known_verdicts
from pytest_cgins.gate.known_verdicts import KnownVerdicts, VerdictStore, line_of
from tests.evaluations import make_evaluation

KEY = "0123456789abcdef" * 4
TESTED = session_report.Tested(
    sources="s", build="b", library="", trace="t", pack="p", config="c", cgins="1", seed=7, key=KEY, environment="a CPU"
)  # fmt: skip


def line(**changes: object) -> str:
    evaluation = replace(make_evaluation(), **({"tested": TESTED} | changes))
    return line_of(evaluation, writer="me@here", revision="1a2b3c4d5e6f")


def known(*texts: str, days: float = 7) -> KnownVerdicts:
    return KnownVerdicts(texts, days=days)


def test_a_line_is_found_by_its_key() -> None:
    """With when, by whom and of what it was verified, in words."""
    found = known(line()).find(KEY)
    assert found is not None
    assert found.correctness == make_evaluation().correctness
    said = str(found.provenance)
    assert said.startswith(f"verified on {datetime.now(timezone.utc):%Y-%m-%d} ")
    assert said.endswith(" UTC by me@here, revision 1a2b3c4d5e, digest 0123456789abcdef")
    assert known(line()).find(KEY[::-1]) is None


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.PASSED])
def test_only_passed_is_kept(status: Status) -> None:
    """All else is run again, and so is what has no key or was taken over itself."""
    assert line_of(replace(make_evaluation(status), tested=TESTED), writer="me", revision="") == ""


def test_without_a_key_and_taken_over_nothing_is_kept() -> None:
    """Or an old verdict would become young by being taken."""
    assert line(tested=replace(TESTED, key="")) == ""
    found = known(line()).find(KEY)
    assert found is not None
    assert line(stored=found.provenance) == ""


@pytest.mark.parametrize(
    ("hours", "taken"),
    [(-1, False), (0, True), (167, True), (169, False)],
    ids=["to come", "now", "young", "old"],
)
def test_age(hours: int, taken: bool) -> None:
    """What is too old is run again, and what has a date to come would never be."""
    text = line()
    now = datetime.now(timezone.utc) + timedelta(hours=hours, seconds=5)
    assert (known(text).find(KEY, now=now) is not None) is taken


def test_what_no_longer_passes_is_not_taken() -> None:
    """The verdict follows from the checks by today's rules."""
    correctness = make_evaluation().correctness
    assert correctness is not None
    probe = Probe(name="repeat", outcome="tripped", reason=Reason.NOT_REPEATABLE)
    assert known(line(correctness=replace(correctness, probes=(probe,)))).find(KEY) is None


@given(st.text(), st.integers(0, 10**6), st.characters(codec="utf-8"))
def test_any_text_is_read_and_no_altered_line_is_taken(junk: str, place: int, character: str) -> None:
    """Whatever a file holds, a line is as it was written or is not there."""
    text = line()
    at = place % (len(text) - 1)
    altered = text[:at] + character + text[at + 1 :]
    found = known(junk, altered)
    assert found.find(KEY) is None or altered == text
    assert known(junk + "\n", text).find(KEY) is not None


@given(st.integers(0, 10**6))
def test_a_torn_line_is_not_taken(length: int) -> None:
    """A run was killed while it wrote; the lines before are whole."""
    text = line()
    torn = text[: length % (len(text) - 1)]
    assert known(torn).find(KEY) is None
    assert known(text + torn).find(KEY) is not None


@pytest.fixture(params=["folder", "file://", "memory://"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty store of each kind; odd characters of folders are no patterns."""
    odd = tmp_path / "a [b] *c"
    return {"folder": str(odd), "file://": f"file://{odd}", "memory://": f"memory://{uuid4()}"}[request.param]


def test_a_store_is_read_as_it_was_written(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of runs beside each other, oldest first; those in which all is too old are removed at the next writing."""
    VerdictStore(address).write([], days=7)
    assert VerdictStore(address).read() == {}
    VerdictStore(address).write([line()], days=7)
    VerdictStore(address).write(["later\n"], days=7)
    assert sorted(VerdictStore(address).read().values()) == sorted([line_text(address), "later\n"])
    monkeypatch.setattr(known_verdicts, "new_name", lambda: "99990101T000000Z-x.verdicts")
    VerdictStore(address).write(["newest\n"], days=-1)
    assert list(VerdictStore(address).read().values()) == ["newest\n"]


def line_text(address: str) -> str:
    return next(text for text in VerdictStore(address).read().values() if KEY in text)


def test_what_cannot_be_opened_or_read_is_told(tmp_path: Path) -> None:
    """With the address, and what to do."""
    with pytest.raises(
        VerdictStoreError, match=r"the store of verdicts nosuch://x cannot be opened: .*nosuch"
    ):
        VerdictStore("nosuch://x")
    (tmp_path / "f.verdicts").mkdir()
    with pytest.raises(
        VerdictStoreError, match=r"cannot be read: IsADirectoryError: .*\n→ check the address"
    ):
        VerdictStore(str(tmp_path)).read()
