"""`pull_request` of cgins.yaml: what it says, and how mistakes in it are told."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pytest_cgins.config import PullRequestSettings, load
from pytest_cgins.core.errors import ConfigError

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
LISTS = ("labels", "reviewers", "team_reviewers", "assignees")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
LOGINS = st.from_regex(r"[A-Za-z0-9]{1,9}(-[A-Za-z0-9]{1,9}){0,2}(_[a-z0-9]{1,8})?", fullmatch=True)
TEAMS = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,99}", fullmatch=True)


def read(folder: Path, text: str) -> PullRequestSettings:
    """A file with one kernel; `text` is what stands in the section's braces, from line 3 on."""
    file = folder / "cgins.yaml"
    kernels = "kernels: {it: {op: torch.mul, device: cpu, target: 'a:b'}}"
    file.write_text(f"version: 1\n{kernels}\n{text}\n", encoding="utf-8")
    return load(file).pull_request


def given_names(folder: Path, key: str, names: list[str]) -> tuple[str, ...]:
    found: tuple[str, ...] = getattr(read(folder, yaml.safe_dump({"pull_request": {key: names}})), key)
    return found


def numbered(count: int) -> str:
    return "[" + ", ".join(f"n{number}" for number in range(count)) + "]"


def test_no_section(tmp_path: Path) -> None:
    """A file that says nothing, or an empty section, means drafts that nobody is asked about."""
    plain = PullRequestSettings(draft=True, labels=(), reviewers=(), team_reviewers=(), assignees=())
    assert read(tmp_path, "") == read(tmp_path, "pull_request: {}") == plain


def test_every_key(tmp_path: Path) -> None:
    """All that can be said arrives, in the order of the file."""
    found = read(
        tmp_path,
        "pull_request: {draft: false, labels: [cgins, 'good first issue', 🚀], reviewers: [zoe, Ada-L, ada_acme], "
        "team_reviewers: [kernels, gpu_team], assignees: ['007']}",
    )
    assert found == PullRequestSettings(
        draft=False,
        labels=("cgins", "good first issue", "🚀"),
        reviewers=("zoe", "Ada-L", "ada_acme"),
        team_reviewers=("kernels", "gpu_team"),
        assignees=("007",),
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("pull_request:", '3: "pull_request" in the file is nothing, not a mapping'),
        ("pull_request: [cgins]", "3: .* is a list, not a mapping"),
        ("pull_request: {labels: [a], labels: [b]}", '3: key "labels" of pull_request is there twice'),
        ("pull_request: {label: [a]}", '3: unknown key "label" in pull_request'),
        ("pull_request: {draft: 'no'}", r'3: "draft" in pull_request is text \(no\), not true or false'),
        ("pull_request: {labels: cgins}", r"3: .* is text \(cgins\), not a list"),
        ("pull_request:\n  labels:\n    - a\n    - 1", r"6: .* is a whole number \(1\), not text"),
        ("pull_request: {labels: ['']}", "3: .* not text that is not empty"),
        ("pull_request: {labels: ['a,b']}", "3: \"labels\" in pull_request: 'a,b' has a comma"),
        ("pull_request: {labels: [' a']}", "3: .* is not a label name"),
        ('pull_request: {labels: ["a\\eb"]}', r"3: .* 'a\\x1bb' is not a label name"),
        ('pull_request: {labels: ["a\\u202Eb"]}', r"3: .* 'a\\u202eb' is not a label name"),
        (f"pull_request: {{labels: [{'a' * 51}]}}", "3: .* has 51 characters"),
        ("pull_request:\n  labels: [bug,\n    Bug]", "5: .* has 'Bug' twice, first in line 4"),
        ("pull_request: {reviewers: ['@ada']}", "3: \"reviewers\" in pull_request: '@ada' is not a login"),
        ("pull_request: {reviewers: [ada, Ada]}", "3: .* has 'Ada' twice, first in line 3"),
        ("pull_request: {assignees: [a--b]}", "3: .* 'a--b' is not a login"),
        ("pull_request: {assignees: [ada-]}", "3: .* 'ada-' is not a login"),
        (f"pull_request: {{assignees: [{'a' * 40}]}}", "3: .* is not a login"),
        ("pull_request: {reviewers: ['cgins-app[bot]']}", "3: .* is not a login"),
        ("pull_request: {team_reviewers: [org/kernels]}", "3: .* 'org/kernels' has a slash"),
        ("pull_request: {team_reviewers: [Kernels]}", "3: .* 'Kernels' is not a team slug"),
        (f"pull_request: {{team_reviewers: [{'a' * 101}]}}", "3: .* is not a team slug"),
        (f"pull_request: {{labels: {numbered(101)}}}", "3: .* has more than 100 names"),
        (f"pull_request: {{assignees: {numbered(11)}}}", "3: .* has more than 10 names"),
        (f"pull_request: {{reviewers: {numbered(16)}}}", "3: .* has more than 15 names"),
        (f"pull_request:\n  reviewers: {numbered(9)}\n  team_reviewers: {numbered(7)}", "5: .* are 16 together"),
    ],
)  # fmt: skip
def test_every_mistake_has_its_line(tmp_path: Path, text: str, complaint: str) -> None:
    """What is wrong is told with file, line and remedy."""
    with pytest.raises(ConfigError, match=rf"cgins\.yaml:{complaint}") as raised:
        read(tmp_path, text)
    assert raised.value.remedy


def test_the_most_that_is_taken(tmp_path: Path) -> None:
    """Lists and names that are as long as they may be are taken whole."""
    found = read(
        tmp_path,
        f"pull_request: {{labels: {numbered(100)}, reviewers: {numbered(8)}, team_reviewers: {numbered(7)}, "
        f"assignees: {numbered(10)}}}",
    )
    assert [len(getattr(found, key)) for key in LISTS] == [100, 8, 7, 10]
    longest = {"labels": 50, "reviewers": 39, "team_reviewers": 100, "assignees": 39}
    for key, count in longest.items():
        assert given_names(tmp_path, key, ["a" * count]) == ("a" * count,)


@QUICK
@given(login=LOGINS, team=TEAMS)
@example(login="a" * 39, team="0")
def test_names_of_github_are_taken(tmp_path: Path, login: str, team: str) -> None:
    """Each login and each slug that GitHub can have is taken as it is written."""
    assert given_names(tmp_path, "reviewers", [login]) == (login,)
    assert given_names(tmp_path, "assignees", [login]) == (login,)
    assert given_names(tmp_path, "team_reviewers", [team]) == (team,)


@QUICK
@given(
    key=st.sampled_from(LISTS),
    name=st.text(alphabet=LETTERS + "A-_/,.@[] \t\n\x00\x1b\u200d\u202eé", max_size=60),
)
def test_any_text_is_taken_or_refused(tmp_path: Path, key: str, name: str) -> None:
    """What is taken fits on a line and parts no list; all else is a ConfigError that is plain to print."""
    try:
        (found,) = given_names(tmp_path, key, [name])
    except ConfigError as error:
        found = ""
        told = error
    if not found:
        assert told.remedy
        assert told.what.isprintable()
        return
    assert found == name
    assert not set(found) & set(",\t\n\x00\x1b\u202e")
    assert len(found) <= {"labels": 50, "team_reviewers": 100}.get(key, 39)


@pytest.mark.exam
@QUICK
@given(names=st.lists(LOGINS, min_size=1, max_size=10, unique_by=str.lower), key=st.sampled_from(LISTS[1::2]))
def test_a_name_twice_is_refused_in_any_case(tmp_path: Path, names: list[str], key: str) -> None:
    """A list of different logins is taken in its order; one of them again, in other case, is refused."""
    assert given_names(tmp_path, key, names) == tuple(names)
    with pytest.raises(ConfigError, match="twice, first in line"):
        given_names(tmp_path, key, [names[0].swapcase(), *names[:9]])
