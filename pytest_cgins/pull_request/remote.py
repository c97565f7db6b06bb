"""Where a remote's url points to: server, owner and repository, and where the server's REST API is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from pytest_cgins.core.errors import GitHubError

GITHUB = "github.com"
_SSH_OVER_443 = "ssh.github.com"
"""Another name of github.com, for networks that let out nothing but the web's ports."""
_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.-]{1,100}")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
_SCP = re.compile(r"(?:[^@/:\s]+@)?([^@/:\s]+):(?!//)([^\s]+)")
_LOOPBACK = ("127.0.0.1", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A repository on GitHub, or on a server of GitHub Enterprise."""

    scheme: str
    """`https`, `http` (of this machine only) or `ssh`."""
    host: str
    """Name of the server, in lower case, without user and port."""
    port: int | None
    """None: the scheme's own."""
    owner: str
    """User or organization."""
    repository: str
    """Name, without `.git`."""

    @property
    def full_name(self) -> str:
        """`owner/repository`, as GitHub writes it."""
        return f"{self.owner}/{self.repository}"

    @property
    def url(self) -> str:
        """For git; never with a user or a password in it."""
        user = "git@" if self.scheme == "ssh" else ""
        return f"{self.scheme}://{user}{self._place}/{self.full_name}.git"

    @property
    def server(self) -> str:
        """Name of the server that people and the API know, which ssh may have another one for."""
        return GITHUB if self.host == _SSH_OVER_443 else self.host

    @property
    def is_githubs(self) -> bool:
        """Whether GitHub runs the server: its own, or one of an enterprise whose data stay in a region."""
        return self.server == GITHUB or self.server.endswith(".ghe.com")

    @property
    def _place(self) -> str:
        return self.host if self.port is None else f"{self.host}:{self.port}"

    def api(self, environment: Mapping[str, str]) -> str:
        """Base of the REST API, without a slash at the end: `GITHUB_API_URL`, else by the server's name.

        Raises:
            GitHubError: it would be reached unencrypted.
        """
        named = environment.get("GITHUB_API_URL", "").strip().rstrip("/")
        if named:
            return encrypted(named, "GITHUB_API_URL")
        if self.is_githubs:
            return f"https://api.{self.server}"
        scheme = "https" if self.scheme == "ssh" else self.scheme
        # The port of an ssh address says nothing about the web server's.
        host = self.host if self.scheme == "ssh" else self._place
        return f"{scheme}://{host}/api/v3"


def graphql(api: str, environment: Mapping[str, str]) -> str:
    """Address of the GraphQL API: `GITHUB_GRAPHQL_URL`, else beside the REST API.

    Raises:
        GitHubError: it would be reached unencrypted.
    """
    named = environment.get("GITHUB_GRAPHQL_URL", "").strip().rstrip("/")
    if named:
        return encrypted(named, "GITHUB_GRAPHQL_URL")
    # GitHub Enterprise has /api/v3 and /api/graphql; github.com api.github.com and api.github.com/graphql.
    return f"{api.removesuffix('/v3')}/graphql"


def parse(url: str) -> Remote:
    """Take a remote's url apart: `https://`, `ssh://` or `git@server:owner/name.git`; user and password are left out.

    Raises:
        GitHubError: it is of another form, or names no owner and repository.
    """
    if "://" in url:
        scheme, host, port, path = _split(url)
    elif (match := _SCP.fullmatch(url)) is not None:
        scheme, host, port, path = "ssh", match[1], None, match[2]
    else:
        raise _unusable(url)
    names = path.strip("/").removesuffix(".git").split("/")
    if scheme not in ("https", "http", "ssh") or not _HOST.fullmatch(host) or len(names) != 2:
        raise _unusable(url)
    if not all(_NAME.fullmatch(name) for name in names):
        raise _unusable(url)
    remote = Remote(scheme=scheme, host=host.lower(), port=port, owner=names[0], repository=names[1])
    encrypted(remote.url, "the remote")
    return remote


def named(full_name: str, remote: Remote) -> Remote:
    """`OWNER/NAME` on the same server.

    Raises:
        GitHubError: it is no such name.
    """
    names = full_name.split("/")
    if len(names) != 2 or not all(_NAME.fullmatch(name) for name in names):
        raise GitHubError(f'"{full_name}" is not a repository', remedy="write OWNER/NAME")
    return Remote(
        scheme=remote.scheme, host=remote.host, port=remote.port, owner=names[0], repository=names[1]
    )


def require_known(remote: Remote, environment: Mapping[str, str], *, api_url: str = "") -> None:
    """Refuse a server that is not GitHub's and that nobody named, for a token that was not named for it.

    An option may name the REST API's address in place of `GITHUB_API_URL`.

    Raises:
        GitHubError: a stranger's server would have the token.
    """
    named = (environment.get("GITHUB_SERVER_URL", ""), api_url or environment.get("GITHUB_API_URL", ""))
    if remote.is_githubs or remote.server in map(_host_of, named):
        return
    raise GitHubError(
        f"the remote is on {remote.host}, which is not GitHub's and which neither GITHUB_SERVER_URL nor the "
        "API's address names: the token is not sent there",
        remedy=f"if the token is of that server, set GITHUB_SERVER_URL to https://{remote.host}, or name the "
        "token's variable with --token-variable",
    )


def _host_of(url: str) -> str:
    try:
        return urlsplit(url.strip()).hostname or ""
    except ValueError:
        return ""


def encrypted(url: str, name: str) -> str:
    """The same url.

    Raises:
        GitHubError: it is none, or a token would travel over a network for all to read.
    """
    host = _host_of(url)
    scheme = urlsplit(url).scheme if host else ""
    if scheme in ("https", "ssh") or (scheme == "http" and host in _LOOPBACK):
        return url
    raise GitHubError(
        f"{name} is {without_user(url)}, which is not encrypted", remedy="use an https:// address"
    )


def without_user(url: str) -> str:
    """A url for messages: user and password are cut out."""
    return re.sub(r"://[^/@]*@", "://", url)


def _split(url: str) -> tuple[str, str, int | None, str]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _unusable(url) from None
    if parts.query or parts.fragment:
        raise _unusable(url)
    return parts.scheme.lower(), parts.hostname or "", port, parts.path


def _unusable(url: str) -> GitHubError:
    return GitHubError(
        f'the remote\'s url "{without_user(url)}" names no repository on GitHub',
        remedy="write https://SERVER/OWNER/NAME.git or git@SERVER:OWNER/NAME.git: git remote set-url",
    )
