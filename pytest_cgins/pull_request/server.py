"""One repository on its server, by each of the three ways to it: git, the REST API and the GraphQL API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pytest_cgins.core.errors import GitHubError
from pytest_cgins.pull_request import remote
from pytest_cgins.pull_request.clone import Clone
from pytest_cgins.pull_request.graphql import Graphql, UnavailableError
from pytest_cgins.pull_request.remote import Remote
from pytest_cgins.pull_request.rest import Rest
from pytest_cgins.pull_request.transport import Transport


@dataclass(slots=True, kw_only=True)
class Server:
    """One repository; `connect` makes it."""

    place: Remote
    """Where it is."""
    clone: Clone
    """Of a clone; sends the token to this repository alone."""
    rest: Rest
    """The REST API."""
    graphql: Graphql
    """The GraphQL API, which old servers lack."""
    _login: str | None = field(default=None, init=False)
    _about: dict[str, str] = field(default_factory=dict, init=False)

    @property
    def url(self) -> str:
        """Of the repository, for git."""
        return self.place.url

    @property
    def default_branch(self) -> str:
        """Of the repository; asked for once."""
        return self._repository()["default_branch"]

    @property
    def node_id(self) -> str:
        """Of the repository, for the GraphQL API; asked for once."""
        return self._repository()["node_id"]

    def head(self, branch: str) -> str:
        """A branch of this repository, as the REST API lists pull requests by it."""
        return f"{self.place.owner}:{branch}"

    def login(self) -> str:
        """Whose token it is, `NAME[bot]` for an App's; "" where the server does not say."""
        if self._login is None:
            try:
                self._login = self.graphql.login()
            except UnavailableError:
                self._login = self._user()
        return self._login

    def is_bot(self) -> bool:
        """Whether the token is an App's or a workflow's, for which the REST API signs commits."""
        return self.login().endswith("[bot]") or not self.login()

    def _user(self) -> str:
        try:
            return str(self.rest.user()["login"])
        except GitHubError as error:
            # So GitHub answers an App's token.
            if error.status == 403:
                return ""
            raise

    def _repository(self) -> dict[str, str]:
        if not self._about:
            found = self.rest.repository()
            self._about = {name: str(found[name]) for name in ("default_branch", "node_id")}
        return self._about


@contextmanager
def connect(
    place: Remote, folder: Path, token: str, environment: Mapping[str, str], *, api_url: str = ""
) -> Iterator[Server]:
    """A repository on its server, until the end of the block.

    Args:
        place: where it is.
        folder: in a clone of it.
        token: that may write.
        environment: names the APIs' addresses, where they are not the usual ones.
        api_url: of the REST API; "" for what the environment or the server's name says.

    Raises:
        GitHubError: an address is not encrypted, or the folder is not there.
    """
    if api_url:
        environment = {**environment, "GITHUB_API_URL": api_url, "GITHUB_GRAPHQL_URL": ""}
    api = place.api(environment)
    with closing(Transport(api, token)) as transport:
        yield Server(
            place=place,
            clone=Clone(folder, token=token, remote=place),
            rest=Rest(transport, place.full_name),
            graphql=Graphql(transport, remote.graphql(api, environment), place.full_name),
        )
