"""One repository on its server, by each of the three ways to it: git, the REST API and the GraphQL API."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pytest_cgins.core.errors import GitHubError
from pytest_cgins.pull_request import app_token, credentials
from pytest_cgins.pull_request import remote as remotes
from pytest_cgins.pull_request.clone import BranchMovedError, Clone
from pytest_cgins.pull_request.graphql import Graphql, RefChange, UnavailableError
from pytest_cgins.pull_request.remote import Remote
from pytest_cgins.pull_request.rest import Rest
from pytest_cgins.pull_request.transport import Transport

APP_KEY_VARIABLE = "CGINS_APP_PRIVATE_KEY"


@dataclass(slots=True, kw_only=True)
class Server:
    """One repository; `connect` makes it."""

    remote: Remote
    clone: Clone
    """Of a clone; sends the token to this repository alone."""
    rest: Rest
    graphql: Graphql
    """The GraphQL API, which old servers lack."""
    _login: str | None = field(default=None, init=False)
    _about: dict[str, str] = field(default_factory=dict, init=False)

    @property
    def url(self) -> str:
        """Of the repository, for git."""
        return self.remote.url

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
        return f"{self.remote.owner}:{branch}"

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

    def change_branches(self, changes: Sequence[RefChange]) -> None:
        """Change branches: all or none, where the server has the GraphQL API; else one after the other.

        What already exists is not done again, so that a lost answer does no harm.

        Raises:
            BranchMovedError: one of them is not as expected.
        """
        try:
            self.graphql.update_refs(self.node_id, changes)
        except UnavailableError:
            for change in changes:
                self._change_branch(change)
        except GitHubError as error:
            tips = [self.rest.branch(change.branch) for change in changes]
            if tips == [change.after for change in changes]:
                return
            for change, tip in zip(changes, tips, strict=True):
                _require(change, tip)
            raise error from None

    def delete_branch(self, branch: str, expected: str) -> None:
        """Delete a branch that has a certain tip.

        Raises:
            BranchMovedError: it has another one.
        """
        self.change_branches([RefChange(branch=branch, before=expected, after=None)])

    def _change_branch(self, change: RefChange) -> None:
        """The same by the REST API, which overwrites what comes between the look and the change."""
        tip = self.rest.branch(change.branch)
        if tip == change.after:
            return
        _require(change, tip)
        try:
            if change.after is None:
                self.rest.delete_branch(change.branch)
            elif change.before is None:
                self.rest.create_branch(change.branch, change.after)
            else:
                self.rest.move_branch(change.branch, change.after)
        except GitHubError:
            tip = self.rest.branch(change.branch)
            if tip == change.after:
                return
            _require(change, tip)
            raise

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
            repository = self.rest.repository()
            self._about = {name: str(repository[name]) for name in ("default_branch", "node_id")}
        return self._about


@contextmanager
def connect(
    remote: Remote, folder: Path, token: str, environment: Mapping[str, str], *, api_url: str = ""
) -> Iterator[Server]:
    """A repository on its server, until the end of the block; `api_url` comes before what the environment says.

    Raises:
        GitHubError: an address is not encrypted, or the folder is not there.
    """
    if api_url:
        environment = {**environment, "GITHUB_API_URL": api_url, "GITHUB_GRAPHQL_URL": ""}
    api = remote.api(environment)
    with closing(Transport(api, token)) as transport:
        yield Server(
            remote=remote,
            clone=Clone(folder, token=token, remote=remote),
            rest=Rest(transport, remote.full_name),
            graphql=Graphql(transport, remotes.graphql(api, environment), remote.full_name),
        )


@contextmanager
def connected(arguments: argparse.Namespace) -> Iterator[Server]:
    """The server that the options of a command name, until the end of the block.

    Args:
        arguments: `config`, `remote`, `repository`, `api_url`, `token_variable`, `app`.

    Raises:
        GitHubError: there is no token, no such remote, its server is a stranger to the token, or the App
            is not installed.
        InfrastructureError: a package is missing that signs for an App.
    """
    folder = arguments.config.parent
    token = "" if arguments.app else credentials.token(os.environ, arguments.token_variable)
    remote = remotes.parse(Clone(folder).remote_url(arguments.remote))
    if arguments.repository:
        remote = remotes.named(arguments.repository, remote)
    url = arguments.api_url
    with ExitStack() as stack:
        if arguments.app:
            key = os.environ.get(APP_KEY_VARIABLE, "")
            if not key.strip():
                raise GitHubError(
                    f"{APP_KEY_VARIABLE} is not set", remedy="set it to the private key of the App, as PEM"
                )
            api = remotes.encrypted(url, "--api-url") if url else remote.api(os.environ)
            minted = app_token.installed(api.rstrip("/"), arguments.app, key, remote.full_name)
            token = stack.enter_context(minted)
        elif not arguments.token_variable:
            remotes.require_known(remote, os.environ, api_url=url)
        yield stack.enter_context(connect(remote, folder, token, os.environ, api_url=url))


def _require(change: RefChange, tip: str | None) -> None:
    if tip != change.before:
        raise BranchMovedError(
            f"{change.branch} is at {(tip or 'nothing')[:12]} on the server, "
            f"and was at {(change.before or 'nothing')[:12]}",
            remedy="the branch was changed by somebody else meanwhile: look at it, and run the command again",
        )
