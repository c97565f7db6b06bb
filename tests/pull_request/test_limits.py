"""More than GitHub takes, lists at once, or allows in an hour: what is left out is said, and nothing is lost or doubled."""

from __future__ import annotations

import html.parser
import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from markdown_it import MarkdownIt

from pytest_cgins.app.cli import main
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.regenerate.proposal.report import PATCH_LENGTH, SHORTENED
from tests.evaluations import make_evaluation
from tests.pull_request.conftest import BRANCH, BROKEN, SOURCE, Place, commit
from tests.pull_request.scenes import SCENES
from tests.pull_request.twin import Fault
from tests.pull_request.twin_api import Comment, Pull
from tests.regenerate import proposals

LIMIT = 65_536
NASTY = "\"'<&>`#@|~ " * 80
"""Each character of which takes five or six where it is escaped."""
NOTICE = "<!-- cgins:notice:scale-cpu-cpp -->"
VOID = {"br", "hr", "img"}
Big = Callable[..., str]


# ---- a long text


class Page(html.parser.HTMLParser):
    """Which elements are open, and the text outside of code."""

    def __init__(self, markdown: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.plain = ""
        self.rows = 0
        self.feed(MarkdownIt("commonmark", {"html": True}).render(markdown))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.rows += tag == "tr"
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> ends nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"code", "pre"} & set(self.open):
            self.plain += data


def _check(body: str) -> Page:
    """Fails if a text is too long, or ends in the middle of something."""
    assert len(body) <= LIMIT
    page = Page(body)
    assert page.open == []
    # What comes last is seen as text: no fence before it is open.
    assert re.search(r"The branch stands on .*The branch: .*The proposal: \.\s*$", page.plain, re.DOTALL)
    return page


@pytest.fixture
def big(place: Place) -> Big:
    """Opens a proposal of which something is large; the text of its pull request."""

    def opened(**changes: Any) -> str:
        known = {"base": {SOURCE: BROKEN}, "new": {SOURCE: "int scale() { return 2; }\n"}}
        proposals.write(place.proposals / "big", **known | changes)
        assert place.open(place.proposals / "big") == 0
        [pull] = place.twin.api.pulls
        return str(pull.body)

    return opened


@pytest.mark.exam
@pytest.mark.parametrize("text", ["x" * 5000, NASTY], ids=["long", "escaped"])
def test_everything_is_long(place: Place, big: Big, text: str) -> None:
    """What would be far over the limit is a whole text below it, which says that it is shortened, and where all of it is."""
    wrong = [
        make_evaluation(Status.INCORRECT, reason=Reason.GOLD_MISMATCH, message=text, signature=f"{n}-{text[:200]}")
        for n in range(60)
    ]  # fmt: skip
    right = [make_evaluation(signature=f"{n}-{text[:200]}") for n in range(60)]
    body = big(
        before=wrong,
        after=proposals.accepted(*right),
        attempts=[proposals.attempt(n, "failed", text) for n in range(1, 60)] + [proposals.attempt(60, "accepted")],
        answers=[proposals.answer(f"{n}{text}") for n in range(30)],
        notes=[f"{n} {text}" for n in range(40)],
        search=[f"{n} {text}" for n in range(90)],
        new={SOURCE: "".join(f"// {n} {text}\n" for n in range(40))},
    )  # fmt: skip
    page = _check(body)
    assert SHORTENED.strip() in body
    assert "the whole is in proposal.json, evidence.json and patch.diff" in page.plain
    assert place.show(f"{BRANCH}:{SOURCE}").count("\n") == 39


@pytest.mark.exam
def test_a_patch_of_thousands_of_lines(big: Big) -> None:
    """As many whole lines as there is room for, and the number of the others."""
    lines = [f"int part_{number}() {{ return {number}; }}" for number in range(5000)]
    page = _check(body := big(new={SOURCE: "\n".join(lines) + "\n"}))
    shown = [line[1:] for line in body.splitlines() if line.startswith("+int part_")]
    assert shown == lines[: len(shown)]
    assert len("\n".join(shown)) > 0.9 * PATCH_LENGTH
    assert f"… {5000 - len(shown)} more lines: patch.diff has them all." in page.plain
    assert "How it was made" in page.plain


def test_one_line_without_end(big: Big) -> None:
    """A line that is longer than all of the text may be is cut, with how much was left out."""
    body = big(new={SOURCE: f"// {'`' * 100_000}\n"})
    assert "more)" in body
    _check(body)


def test_hundreds_of_cases(big: Big) -> None:
    """As many rows as there is room for, and the number of the others; no other part is lost for it."""
    cases = [make_evaluation(signature=f"f32-{number}x3-0001") for number in range(300)]
    wrong = [
        make_evaluation(Status.INCORRECT, message="wrong", signature=one.case.signature) for one in cases
    ]
    page = _check(body := big(before=wrong, after=proposals.accepted(*cases)))
    shown = sum(f"f32-{number}x3-0001</code></td>" in body for number in range(300))
    assert 50 < shown < 300
    assert f"… {300 - shown} more cases: evidence.json has them all." in page.plain
    assert "… 295 more cases failed." in page.plain
    assert SHORTENED.strip() not in body
    assert all(one in page.plain for one in ("What was wrong", "Patch", "How it was made", "Again"))


def test_a_base_that_moved_far(place: Place, big: Big) -> None:
    """Of many files that changed since the measurement some are named, the others counted."""
    measured = place.tip("main")
    names = [f"kernels/{number:02}-{'n' * 180}.h" for number in range(40)]
    commit(place.other, dict.fromkeys(names, "// changed\n"))
    body = big(base_commit=measured, search=[f"{n} {NASTY}" for n in range(90)])
    _check(body)
    assert "kernels/00-" in body
    assert "kernels/39-" not in body
    assert "measures it again" in body


# ---- long lists


@pytest.mark.exam
def test_a_notice_behind_many_comments(place: Place) -> None:
    """Behind a hundred and fifty of others, with the same marker, its own is written once, left, and then rewritten."""
    api = place.twin.api
    place.open(folder := place.propose())
    api.comments += [Comment(number, 1, "ada", f"{NOTICE}\nmine") for number in range(1, 151)]
    place.twin.requests.clear()
    edits = []
    for source, code in (("int scale();\n", 1), ("int scale(int);\n", 1), (BROKEN, 0)):
        commit(place.other, {SOURCE: source})
        assert place.open(folder) == code
        [own] = [one for one in api.comments if one.login != "ada"]
        edits.append((own.id, own.edits, own.body.partition("\n")[2].split()[0]))
    assert edits == [(151, 0, "**Stale.**"), (151, 0, "**Stale.**"), (151, 1, "It")]
    assert not any(one.edits for one in api.comments[:-1])
    asked = [
        request
        for request in place.twin.requests
        if request.path.endswith("/comments") and request.method == "GET"
    ]
    assert [one.query for one in asked] == ["per_page=100&page=1", "per_page=100&page=2"] * 3


@pytest.mark.exam
def test_its_own_behind_many_pull_requests(place: Place) -> None:
    """The oldest of a hundred and twenty is listed, marked, and closed; of the others nothing is said."""
    place.open()
    commit(place.other, {SOURCE: "int scale() { return 9; }\n"})
    others = [Pull(number, "t", "words", f"work-{number}", "main", False) for number in range(2, 121)]
    place.twin.api.pulls += others
    place.printed()
    assert main(["pull-request", "status", "--mark", "--json"]) == 0
    assert [(one["number"], one["stands"]) for one in json.loads(place.printed().out)] == [(1, "stale")]
    assert [one.number for one in place.twin.api.pulls if one.labels] == [1]
    assert main(["pull-request", "close", "--stale"]) == 0
    assert [one.number for one in place.twin.api.pulls if one.state == "closed"] == [1]
    assert {one.number for one in place.twin.api.comments} == {1}


# ---- too many requests


@pytest.mark.exam
@pytest.mark.parametrize("name", ["new-app", "new-person", "stale"])
def test_a_secondary_limit_at_each_write(name: str, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever write is one too many, it is waited for and done, once; one in general, tests of the transport hold."""
    scene = SCENES[name]
    folder, bring_back = scene.begin(place, monkeypatch)
    for writes in range(100):
        bring_back()
        place.twin.api.secondary_limit_after = writes
        assert place.open(folder) == scene.code, writes
        scene.check(place)
        if place.twin.api.secondary_limit_after is not None:
            break
    assert writes >= 2


@pytest.mark.exam
@pytest.mark.parametrize(
    ("name", "every"),
    [
        ("new-app", False),
        *(pytest.param(name, True, marks=pytest.mark.exam) for name in ("new-app", "stale")),
    ],
)
def test_an_hours_limit_is_used_up(
    name: str, every: bool, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From some request on all are refused for an hour: told at once and with what to do, and the next run ends it, with
    nothing doubled."""
    scene = SCENES[name]
    folder, bring_back = scene.begin(place, monkeypatch)
    place.open(folder)
    changes = place.changes()
    assert len(changes) >= 3
    for at in [0, *changes] if every else (0, changes[1]):
        bring_back()
        _refuse(place, at)
        place.printed()
        with monkeypatch.context() as patch:
            patch.setattr("time.sleep", _no_wait)
            assert place.open(folder) == 2, at
        error = place.printed().err
        assert "API rate limit exceeded for installation ID 77." in error
        assert "GitHub limits how much is asked of it: run the command again later" in error
        place.twin.restart()
        assert place.open(folder) == scene.code, at
        scene.check(place)


def _no_wait(seconds: float) -> None:
    # Shorter ones are of the standard library, which looks in between whether git has ended.
    assert seconds < 0.1


def _refuse(place: Place, at: int) -> None:
    """All of the API's requests from one on."""
    headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(time.time()) + 3600)}
    message = "API rate limit exceeded for installation ID 77."
    place.twin.faults = [
        Fault(path="^/api/", status=403, headers=headers, message=message, at=one)
        for one in range(at, at + 60)
    ]
