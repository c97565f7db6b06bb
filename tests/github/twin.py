"""A strict twin of GitHub: real git over HTTP on a bare repository, and the REST API as GitHub describes it.

`python -m tests.github.twin --repository PATH` serves one and prints where; `/_pulls` shows its pull requests.

Each request and each answer is held against GitHub's OpenAPI description (`oracle`); what does not fit is kept in
`violations`, and the request fails. `faults` makes it fail as GitHub does on a bad day.
"""

from __future__ import annotations

import argparse
import base64
import html
import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from tests.github import oracle
from tests.github.twin_api import Api, Refusal

API = "/api/v3"
WRITER, READER, ACTIONS = "twin-writes", "twin-reads", "twin-actions"
"""Tokens: of who may write; who may read; of a workflow that must not open pull requests."""


@dataclass
class Fault:
    """What happens instead of, or after, some requests."""

    method: str
    path: str
    """Pattern that is searched for in path and query."""
    kind: Literal["status", "lost", "cut", "html"] = "status"
    """`lost`: done, and no answer sent; `cut`: done, and half of the answer; `html`: a proxy's page."""
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    message: str = "Server Error"
    times: int = 1


@dataclass
class Request:
    method: str
    path: str
    query: str
    authorization: str
    body: Any = None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """As the base does, without asking the name service who 127.0.0.1 is."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]


class Twin:
    """The server."""

    def __init__(self, api: Api, *, port: int = 0) -> None:
        self.api = api
        self.tokens = {WRITER, READER, ACTIONS}
        self.requests: list[Request] = []
        self.violations: list[str] = []
        self.faults: list[Fault] = []
        self.lock = threading.RLock()
        self.server = _Server(("127.0.0.1", port), type("Handler", (_Handler,), {"twin": self}))
        self.url = api.url = f"http://127.0.0.1:{self.server.server_port}"
        self.remote = f"{self.url}/{api.owner}/{api.name}.git"

    def fault(self, request: Request) -> Fault | None:
        for one in self.faults:
            if (
                one.times
                and one.method == request.method
                and re.search(one.path, f"{request.path}?{request.query}")
            ):
                one.times -= 1
                return one
        return None


@contextmanager
def serve(repository: Path, *, owner: str = "octo", name: str = "kernels", **api: Any) -> Iterator[Twin]:
    """A twin of a bare repository, until the end of the block."""
    twin = Twin(Api(path=repository, owner=owner, name=name, **api))
    thread = threading.Thread(target=twin.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield twin
    finally:
        twin.server.shutdown()
        twin.server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    twin: Twin
    protocol_version = "HTTP/1.1"
    # Headers and body go out in two pieces, of which the second would wait for the first one's receipt.
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PATCH = do_PUT = do_DELETE = do_GET  # noqa: N815

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        body = self._body()
        request = Request(
            self.command, parts.path, parts.query, self.headers.get("Authorization", ""), body or None
        )
        with self.twin.lock:
            self.twin.requests.append(request)
            fault = self.twin.fault(request)
            if fault and fault.kind in ("status", "html"):
                self._send_fault(fault)
            elif parts.path == "/_pulls":
                self._send_page()
            elif parts.path.startswith(API):
                status, answer = self._rest(request, parts.path.removeprefix(API))
                self._send(status, json.dumps(answer).encode(), {"Content-Type": "application/json"}, fault)
            else:
                self._git(request, body)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            pieces = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    # ---- REST

    def _rest(self, request: Request, path: str) -> tuple[int, Any]:
        found = oracle.operation(request.method, unquote(path))
        if found is None:
            return self._violation(request, ["there is no such operation"])
        operation, parameters = found
        try:
            body = json.loads(request.body) if request.body else None
        except ValueError:
            return self._violation(request, ["the body is not JSON"])
        request.body = body
        faults = self._header_faults() + oracle.request_faults(operation, request.query, body)
        if faults:
            return self._violation(request, faults)
        try:
            self._check_token(request, operation["template"])
            status, answer = self.twin.api.answer(
                operation["template"], request.method, parameters, request.query, body
            )
        except Refusal as refusal:
            status, answer = refusal.status, refusal.body
        faults = oracle.answer_faults(operation, status, answer)
        return self._violation(request, faults) if faults else (status, answer)

    def _header_faults(self) -> list[str]:
        wanted = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
        faults = [
            f"header {name} is not {value}" for name, value in wanted.items() if self.headers[name] != value
        ]
        return faults + ([] if self.headers["User-Agent"] else ["there is no User-Agent"])

    def _check_token(self, request: Request, template: str) -> None:
        token = _token(request.authorization)
        if not token:
            # A private repository hides from those who do not say who they are.
            raise (
                Refusal(401, "Requires authentication") if template == "/user" else Refusal(404, "Not Found")
            )
        if token not in self.twin.tokens:
            raise Refusal(401, "Bad credentials")
        if request.method != "GET" and token == READER:
            raise Refusal(403, "Resource not accessible by personal access token")
        if request.method == "POST" and template.endswith("/pulls") and token == ACTIONS:
            raise Refusal(403, "GitHub Actions is not permitted to create or approve pull requests.")

    def _violation(self, request: Request, faults: list[str]) -> tuple[int, Any]:
        self.twin.violations += [f"{request.method} {request.path}?{request.query}: {one}" for one in faults]
        return 400, {"message": "the twin found: " + "; ".join(faults), "status": "400"}

    # ---- git

    def _git(self, request: Request, body: bytes) -> None:
        api = self.twin.api
        prefix = f"/{api.owner}/{api.name}.git"
        token = _token(request.authorization)
        writes = "git-receive-pack" in request.path + request.query
        if token not in self.twin.tokens:
            self._send(401, b"", {"WWW-Authenticate": 'Basic realm="GitHub"'})
        elif not request.path.startswith(f"{prefix}/"):
            self._send(404, b"Repository not found.", {"Content-Type": "text/plain"})
        elif writes and token == READER:
            self._send(403, b"Write access to repository not granted.", {"Content-Type": "text/plain"})
        else:
            self._backend(request, request.path.removeprefix(prefix), body)

    def _backend(self, request: Request, path: str, body: bytes) -> None:
        repository = self.twin.api.path
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(repository.parent),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "GATEWAY_INTERFACE": "CGI/1.1",
            "REQUEST_METHOD": request.method,
            "PATH_INFO": f"/{repository.name}{path}",
            "QUERY_STRING": request.query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_USER": "octo",
            "REMOTE_ADDR": "127.0.0.1",
        }
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=environment, capture_output=True, check=True
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self._send(int(headers.pop("Status", "200").split()[0]), content, headers)

    # ---- answers

    def _send_fault(self, fault: Fault) -> None:
        if fault.kind == "html":
            self._send(200, b"<html>Please log in</html>", {"Content-Type": "text/html"})
            return
        answer = {"message": fault.message, "documentation_url": "https://docs.github.com/rest"}
        headers = {"Content-Type": "application/json", **fault.headers}
        self._send(fault.status, json.dumps(answer).encode(), headers)

    def _send_page(self) -> None:
        with self.twin.lock:
            pulls = [self.twin.api.shown(one) for one in self.twin.api.pulls]
        if "html" in self.headers.get("Accept", ""):
            self._send(200, _page(pulls).encode(), {"Content-Type": "text/html; charset=utf-8"})
        else:
            self._send(200, json.dumps(pulls, indent=1).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, content: bytes, headers: dict[str, str], fault: Fault | None = None) -> None:
        if fault and fault.kind == "lost":
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if fault and fault.kind == "cut":
            self.close_connection = True
            content = content[: len(content) // 2]
        self.wfile.write(content)


def _token(authorization: str) -> str:
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except ValueError:
            return ""
    return value if scheme.lower() in ("bearer", "token") else ""


def _page(pulls: list[dict[str, Any]]) -> str:
    rows = [
        f"<h2>#{one['number']} {html.escape(one['title'])}</h2><p>{one['state']}{' draft' if one['draft'] else ''}: "
        f"{html.escape(one['head']['ref'])} into {html.escape(one['base']['ref'])}</p>"
        f"<pre>{html.escape(one['body'] or '')}</pre>"
        for one in pulls
    ]
    return f"<!doctype html><title>Pull requests</title><h1>Pull requests</h1>{''.join(rows) or '<p>None yet.</p>'}"


def main() -> None:
    """Serve one repository until the process is ended."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.github.twin", description="A twin of GitHub on loopback."
    )
    parser.add_argument("--repository", type=Path, required=True, metavar="PATH", help="a bare repository")
    parser.add_argument("--owner", default="octo")
    parser.add_argument("--name", default="kernels")
    parser.add_argument("--default-branch", default="main")
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    parser.add_argument("--token", default=WRITER, help="the one that may write; default: %(default)s")
    given = parser.parse_args()
    api = Api(
        path=given.repository.resolve(),
        owner=given.owner,
        name=given.name,
        default_branch=given.default_branch,
    )
    twin = Twin(api, port=given.port)
    twin.tokens.add(given.token)
    print(twin.remote, flush=True)
    print(f"{twin.url}/_pulls", flush=True)
    with suppress(KeyboardInterrupt):
        twin.server.serve_forever()


if __name__ == "__main__":
    main()
