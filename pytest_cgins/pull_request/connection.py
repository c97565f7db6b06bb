"""From the options of a command to its server: which repository, which address, whose token."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager

from pytest_cgins.core.errors import GitHubError
from pytest_cgins.pull_request import app_token, credentials, remote
from pytest_cgins.pull_request.clone import Clone
from pytest_cgins.pull_request.server import Server, connect

KEY_VARIABLE = "CGINS_APP_PRIVATE_KEY"


@contextmanager
def connected(arguments: argparse.Namespace) -> Iterator[Server]:
    """The server that the options name, until the end of the block.

    Args:
        arguments: `config`, `remote`, `repository`, `api_url`, `token_variable`, `app`.

    Raises:
        GitHubError: there is no token, no such remote, its server is a stranger to the token, or the App is not
            installed.
        InfrastructureError: a package is missing that signs for an App.
    """
    folder = arguments.config.parent
    if not arguments.app:
        token = credentials.token(os.environ, arguments.token_variable)
    place = remote.parse(Clone(folder).remote_url(arguments.remote))
    if arguments.repository:
        place = remote.named(arguments.repository, place)
    if not arguments.app:
        if not arguments.token_variable:
            remote.require_known(place, os.environ, api_url=arguments.api_url)
        with connect(place, folder, token, os.environ, api_url=arguments.api_url) as server:
            yield server
        return
    key = os.environ.get(KEY_VARIABLE, "")
    if not key.strip():
        raise GitHubError(f"{KEY_VARIABLE} is not set", remedy="set it to the private key of the App, as PEM")
    api = remote.encrypted(arguments.api_url, "--api-url") if arguments.api_url else place.api(os.environ)
    with (
        app_token.installed(api.rstrip("/"), arguments.app, key, place.full_name) as minted,
        connect(place, folder, minted, os.environ, api_url=arguments.api_url) as server,
    ):
        yield server
