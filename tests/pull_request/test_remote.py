"""Where a remote's url points to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.core.errors import GitHubError
from pytest_cgins.pull_request.remote import encrypted, graphql, named, parse, require_known

NAMES = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,30}[A-Za-z0-9_-]", fullmatch=True)
HOSTS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?(\.[a-z]{2,6}){1,2}", fullmatch=True)


@pytest.mark.exam
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


@pytest.mark.exam
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
        ("ssh://git@ssh.github.com:443/o/r.git", "https://api.github.com"),
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
    with pytest.raises(GitHubError, match=r"GITHUB_API_URL is https://\[x, "):
        remote.api({"GITHUB_API_URL": "https://[x"})


@pytest.mark.parametrize("url", ["http://github.com/o/r", "http://10.0.0.1/o/r.git"])
def test_unencrypted_addresses_are_refused(url: str) -> None:
    """A token would travel for all to read."""
    with pytest.raises(GitHubError, match="not encrypted"):
        parse(url)
    assert encrypted("http://localhost:1/x", "it") == "http://localhost:1/x"


def test_ssh_over_the_port_of_the_web() -> None:
    """github.com has another name for it, which git goes on to use."""
    remote = parse("ssh://git@ssh.github.com:443/o/r.git")
    assert (remote.server, remote.is_githubs) == ("github.com", True)
    assert remote.url == "ssh://git@ssh.github.com:443/o/r.git"


@pytest.mark.parametrize(
    ("url", "environment", "api_url"),
    [
        ("https://github.com/o/r", {"GITHUB_SERVER_URL": "https://git.corp.example"}, ""),
        ("ssh://git@ssh.github.com:443/o/r", {}, ""),
        ("git@corp.ghe.com:o/r", {}, ""),
        ("https://git.corp.example/o/r", {"GITHUB_SERVER_URL": "https://Git.Corp.example/"}, ""),
        ("ssh://git@git.corp.example:2222/o/r", {"GITHUB_SERVER_URL": "https://git.corp.example"}, ""),
        ("https://git.corp.example/o/r", {"GITHUB_API_URL": "https://git.corp.example/api/v3"}, ""),
        ("https://git.corp.example/o/r", {}, "https://git.corp.example/api/v3"),
    ],
)
def test_servers_that_may_have_the_token(url: str, environment: dict[str, str], api_url: str) -> None:
    """GitHub's own, and those that the environment or an option names."""
    require_known(parse(url), environment, api_url=api_url)


@pytest.mark.parametrize(
    ("host", "environment", "api_url"),
    [
        ("gitlab.com", {}, ""),
        ("gitlab.com", {"GITHUB_SERVER_URL": "https://github.com"}, ""),
        ("git.corp.example", {"GITHUB_API_URL": "https://api.github.com"}, ""),
        ("git.corp.example", {"GITHUB_API_URL": "https://git.corp.example"}, "https://api.github.com"),
        ("ghe.com", {}, ""),
        ("github.com.evil.example", {}, ""),
        ("corp.ghe.com.evil.example", {}, ""),
        ("evil.example", {"GITHUB_SERVER_URL": "https://evil.example@github.com", "GITHUB_API_URL": "http://[x"}, ""),
    ],
)  # fmt: skip
def test_strangers_do_not_get_the_token(host: str, environment: dict[str, str], api_url: str) -> None:
    """The server is named, and what to do if it is the token's own."""
    with pytest.raises(GitHubError, match=f"the remote is on {host}, ") as caught:
        require_known(parse(f"https://{host}/o/r"), environment, api_url=api_url)
    assert f"set GITHUB_SERVER_URL to https://{host}" in caught.value.remedy


@pytest.mark.parametrize("name", ["a", "a/b/c", "a/..", "./b", "a/b c", "/b", ""])
def test_names_that_are_no_repository(name: str) -> None:
    """--repository is OWNER/NAME."""
    with pytest.raises(GitHubError, match="is not a repository"):
        named(name, parse("https://github.com/o/r"))
