"""Where a remote's url points to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.errors import GitHubError
from pytest_cgins.github.remote import encrypted, graphql, named, parse

NAMES = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,30}[A-Za-z0-9_-]", fullmatch=True)
HOSTS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?(\.[a-z]{2,6}){1,2}", fullmatch=True)


@given(
    host=HOSTS,
    owner=NAMES,
    name=NAMES,
    form=st.sampled_from(["https", "user", "password", "ssh", "scp", "slash"]),
)
def test_every_form_of_an_address_means_the_same(host: str, owner: str, name: str, form: str) -> None:
    """Whatever the form, server, owner and name come out, and no user or password."""
    forms = {
        "https": f"https://{host}/{owner}/{name}.git",
        "user": f"https://x-access-token@{host}/{owner}/{name}",
        "password": f"https://u:hunter2@{host}/{owner}/{name}.git",
        "ssh": f"ssh://git@{host}/{owner}/{name}.git",
        "scp": f"git@{host}:{owner}/{name}.git",
        "slash": f"https://{host}/{owner}/{name}/",
    }
    remote = parse(forms[form])
    assert (remote.host, remote.full_name) == (host, f"{owner}/{name}")
    assert remote.scheme == ("ssh" if form in ("ssh", "scp") else "https")
    assert "hunter2" not in repr(remote) + remote.url
    assert parse(remote.url) == remote


@given(st.text(max_size=60) | st.from_regex(r"(https|ssh|ftp|file)://[^ ]{0,40}", fullmatch=True))
def test_anything_else_is_refused(text: str) -> None:
    """Any text is a remote or an error of ours."""
    try:
        remote = parse(text)
    except GitHubError as error:
        assert error.remedy  # noqa: PT017
    else:
        assert parse(remote.url) == remote


@pytest.mark.parametrize(
    ("url", "api"),
    [
        ("https://github.com/o/r.git", "https://api.github.com"),
        ("git@github.com:o/r.git", "https://api.github.com"),
        ("https://git.corp.example/o/r", "https://git.corp.example/api/v3"),
        ("https://git.corp.example:8443/o/r", "https://git.corp.example:8443/api/v3"),
        ("https://corp.ghe.com/o/r.git", "https://api.corp.ghe.com"),
        ("ssh://git@git.corp.example:2222/o/r.git", "https://git.corp.example/api/v3"),
        ("http://127.0.0.1:8000/o/r.git", "http://127.0.0.1:8000/api/v3"),
    ],
)
def test_the_api_follows_from_the_server(url: str, api: str) -> None:
    """GitHub's own API has a host of its own; that of GitHub Enterprise a path."""
    assert parse(url).api({}) == api


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://github.com/o/r", "https://api.github.com/graphql"),
        ("git@corp.ghe.com:o/r.git", "https://api.corp.ghe.com/graphql"),
        ("https://git.team.example:8443/o/r", "https://git.team.example:8443/api/graphql"),
    ],
)
def test_the_graphql_api_lies_beside_it(url: str, address: str) -> None:
    """Without the version, where that is a path; GITHUB_GRAPHQL_URL goes first, and must be encrypted."""
    api = parse(url).api({})
    assert graphql(api, {}) == address
    assert graphql(api, {"GITHUB_GRAPHQL_URL": "https://x.example/q/"}) == "https://x.example/q"
    with pytest.raises(GitHubError, match=r"GITHUB_GRAPHQL_URL is http://x\.example, which is not encrypted"):
        graphql(api, {"GITHUB_GRAPHQL_URL": "http://x.example"})


def test_the_environment_names_another_api() -> None:
    """GITHUB_API_URL goes first, as Actions set it; unencrypted it is refused."""
    remote = parse("https://github.com/o/r")
    assert remote.api({"GITHUB_API_URL": "https://api.corp.ghe.com/"}) == "https://api.corp.ghe.com"
    with pytest.raises(GitHubError, match=r"GITHUB_API_URL is http://x\.example, which is not encrypted"):
        remote.api({"GITHUB_API_URL": "http://u:p@x.example"})


@pytest.mark.parametrize("url", ["http://github.com/o/r", "http://10.0.0.1/o/r.git"])
def test_unencrypted_addresses_are_refused(url: str) -> None:
    """A token would travel for all to read."""
    with pytest.raises(GitHubError, match="not encrypted"):
        parse(url)
    assert encrypted("http://localhost:1/x", "it") == "http://localhost:1/x"


@pytest.mark.parametrize("name", ["a", "a/b/c", "a/..", "./b", "a/b c", "/b", ""])
def test_names_that_are_no_repository(name: str) -> None:
    """--repository is OWNER/NAME."""
    with pytest.raises(GitHubError, match="is no repository"):
        named(name, parse("https://github.com/o/r"))
