"""Real git behind the twin: `git http-backend` on the bare repository, with GitHub's refusal for protected branches."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping

from tests.pull_request import twin_hook
from tests.pull_request.twin_state import State


def backend(
    api: State, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes
) -> tuple[int, bytes, dict[str, str]]:
    """Status, content and headers of git's answer.

    Args:
        path: from the repository on: `/info/refs`.
        headers: of the request.
    """
    settings = [("safe.directory", "*"), ("uploadpack.allowFilter", "true")]
    if api.protected:
        _install_hook(api)
        settings += [("receive.procReceiveRefs", f"refs/heads/{one}") for one in api.protected]
    environment = {
        "PATH": os.environ["PATH"],
        "GIT_PROJECT_ROOT": str(api.path.parent),
        "GIT_HTTP_EXPORT_ALL": "1",
        "GIT_CONFIG_COUNT": str(len(settings)),
        "GATEWAY_INTERFACE": "CGI/1.1",
        "REQUEST_METHOD": method,
        "PATH_INFO": f"/{api.path.name}{path}",
        "QUERY_STRING": query,
        "CONTENT_TYPE": headers.get("Content-Type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_CONTENT_ENCODING": headers.get("Content-Encoding", ""),
        "GIT_PROTOCOL": headers.get("Git-Protocol", ""),
        "REMOTE_USER": "octo",
        "REMOTE_ADDR": "127.0.0.1",
    }
    for at, (name, value) in enumerate(settings):
        environment |= {f"GIT_CONFIG_KEY_{at}": name, f"GIT_CONFIG_VALUE_{at}": value}
    done = subprocess.run(
        ["git", "http-backend"], input=body, env=environment, capture_output=True, check=True
    )
    head, _, content = done.stdout.partition(b"\r\n\r\n")
    found = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
    return int(found.pop("Status", "200").split()[0]), content, found


def _install_hook(api: State) -> None:
    hook = api.path / "hooks" / "proc-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(twin_hook.__file__)}\n")
    hook.chmod(0o755)
