"""A strict twin of GitHub: real git over HTTP on a bare repository, and REST and GraphQL as GitHub describes them.

Each request and each answer is held against GitHub's OpenAPI description (`oracle`) or GraphQL schema
(`graphql_oracle`); what does not fit is kept in `violations`, and the request fails. `faults` makes it fail as GitHub
does on a bad day; `hook` is told of each request, so that a test can do something between two of them.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from tests.pull_request import graphql_oracle, oracle, twin_app, twin_git_http, twin_graphql
from tests.pull_request.twin_api import Api, Refusal

API, GRAPHQL = "/api/v3", "/api/graphql"
WRITER, READER, ACTIONS, BOT = "twin-writes", "twin-reads", "twin-actions", "twin-bot"
"""Tokens: of who may write; who may read; of a workflow that must not open pull requests; of an app."""
FORK_IS_GONE = "head.repo: None is not of type 'object'"
"""What the description says of an answer that GitHub gives all the same."""
JSON = {"Content-Type": "application/json; charset=utf-8"}


@dataclass
class Fault:
    """What happens instead of, or after, some requests, git's too."""

    method: str = ""
    """"" for any."""
    path: str = ""
    """Pattern that is searched for in path and query."""
    kind: Literal["status", "lost", "cut", "html", "drop"] = "status"
    """`lost`: done, and no answer sent; `cut`: done, and half of the answer; `html`: a proxy's page; `drop`: not done,
    and the connection closed."""
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    message: str = "Server Error"
    times: int = 1
    at: int | None = None
    """Only the request that has this number since the twin's (re)start, counted from 0."""


@dataclass
class Request:
    method: str
    path: str
    query: str
    authorization: str
    body: Any = None


@dataclass
class Reply:
    """What is sent back."""

    status: int
    content: bytes
    headers: dict[str, str]


class Tokens(dict[str, str]):
    """Logins by token; "" for that of the api."""

    def add(self, token: str, login: str = "") -> None:
        self[token] = login


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """As the base does, without asking the name service who 127.0.0.1 is."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def handle_error(self, *about: Any) -> None:
        """Say nothing of a client that was killed; a defect of the twin is one to see."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(*about)


class Twin:
    """The server."""

    def __init__(self, api: Api, *, port: int = 0) -> None:
        self.api = api
        self.tokens = Tokens(
            {WRITER: "", READER: "cgins-reader", ACTIONS: "github-actions[bot]", BOT: twin_app.LOGIN}
        )
        self.requests: list[Request] = []
        self.violations: list[str] = []
        self.faults: list[Fault] = []
        self.count = 0
        """Requests since the start, or since `restart`."""
        self.hook: Callable[[int, Request, str], None] | None = None
        """Called with a request's number, the request, and "before" it is done or "after" that, before its answer."""
        self.lock = threading.RLock()
        self.server = _Server(("127.0.0.1", port), type("Handler", (_Handler,), {"twin": self}))
        self.url = api.url = f"http://127.0.0.1:{self.server.server_port}"
        self.remote = f"{self.url}/{api.owner}/{api.name}.git"

    def restart(self) -> None:
        """Count requests from 0 again, without faults and without a hook; what it knows stays."""
        with self.lock:
            self.count, self.faults, self.hook, self.api.writes = 0, [], None, 0

    def arrived(self, request: Request) -> tuple[int, Fault | None]:
        """The number of a request, and what is to go wrong with it."""
        with self.lock:
            self.requests.append(request)
            index, self.count = self.count, self.count + 1
            for one in self.faults:
                if (
                    one.times
                    and one.at in (None, index)
                    and one.method in ("", request.method)
                    and re.search(one.path, f"{request.path}?{request.query}")
                ):
                    one.times -= 1
                    return index, one
            return index, None

    def login(self, token: str) -> str:
        """Who a token is of.

        Raises:
            Refusal: nobody, or it has expired.
        """
        minted = self.api.minted.get(token)
        if minted is not None and minted.expires > time.time():
            return twin_app.LOGIN
        if token not in self.tokens:
            raise Refusal(401, "Bad credentials")
        return self.tokens[token] or self.api.login


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


class Handler(BaseHTTPRequestHandler):
    """What the handlers of all servers of these tests share: `serve` answers any method."""

    protocol_version = "HTTP/1.1"
    # Headers and body go out in two pieces, of which the second would wait for the first one's receipt.
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self.serve()

    do_POST = do_PATCH = do_PUT = do_DELETE = do_GET  # noqa: N815

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            pieces = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))


class _Handler(Handler):
    twin: Twin

    def serve(self) -> None:
        parts, body = urlsplit(self.path), self.body()
        request = Request(
            self.command, parts.path, parts.query, self.headers.get("Authorization", ""), body or None
        )
        twin = self.twin
        index, fault = twin.arrived(request)
        # Without the lock: what the hook does may be requests.
        if twin.hook:
            twin.hook(index, request, "before")
        if fault and fault.kind == "drop":
            self.close_connection = True
            return
        with twin.lock:
            reply = self._reply(request, body, fault)
        if twin.hook:
            twin.hook(index, request, "after")
        with suppress(ConnectionError):
            self._send(reply, fault)

    def _reply(self, request: Request, body: bytes, fault: Fault | None) -> Reply:
        if fault and fault.kind in ("status", "html"):
            return _failed(fault)
        self.twin.api.settle()
        if request.path == GRAPHQL or request.path.startswith(f"{API}/"):
            try:
                status, answer = (
                    self._graphql(request)
                    if request.path == GRAPHQL
                    else self._rest(request, request.path.removeprefix(API))
                )
                headers = JSON
            except Refusal as refusal:
                status, answer, headers = refusal.status, refusal.body, JSON | refusal.headers
            return Reply(status, b"" if status == 204 else json.dumps(answer).encode(), headers)
        return self._git(request, body)

    # ---- REST

    def _rest(self, request: Request, path: str) -> tuple[int, Any]:
        found = oracle.operation(request.method, unquote(path))
        if found is None:
            return self._violation(request, ["there is no such operation"])
        operation, parameters = found
        try:
            request.body = json.loads(request.body) if request.body else None
        except ValueError:
            return self._violation(request, ["the body is not JSON"])
        faults = self._header_faults() + oracle.request_faults(operation, request.query, request.body)
        if faults:
            return self._violation(request, faults)
        try:
            login = self._check_token(request, operation["template"])
            if request.method != "GET":
                self._limit()
            status, answer = self.twin.api.answer(
                operation["template"], request.method, parameters, request.query, request.body,
                login=login, token=_token(request.authorization),
            )  # fmt: skip
        except Refusal as refusal:
            if faults := oracle.answer_faults(operation, refusal.status, refusal.body):
                return self._violation(request, faults)
            raise
        if request.method != "GET":
            self.twin.api.settle(login)
        faults = [
            one for one in oracle.answer_faults(operation, status, answer) if not one.endswith(FORK_IS_GONE)
        ]
        return self._violation(request, faults) if faults else (status, answer)

    def _header_faults(self, accept: tuple[str, ...] = ("application/vnd.github+json",)) -> list[str]:
        wanted = {"Accept": accept, "X-GitHub-Api-Version": ("2022-11-28",)}
        faults = [
            f"header {name} is not {' or '.join(values)}"
            for name, values in wanted.items()
            if self.headers[name] not in values
        ]
        return faults + ([] if self.headers["User-Agent"] else ["there is no User-Agent"])

    def _check_token(self, request: Request, template: str) -> str:
        """The login of who asks.

        Raises:
            Refusal: the token may not do it.
        """
        token, api = _token(request.authorization), self.twin.api
        if (request.method, template) in twin_app.BY_WEB_TOKEN:
            twin_app.check_web_token(api, token)
            return twin_app.LOGIN
        if not token:
            # A private repository hides from those who do not say who they are.
            hidden = template.startswith("/repos/")
            raise Refusal(404, "Not Found") if hidden else Refusal(401, "Requires authentication")
        login = self.twin.login(token)
        if template == "/user" and (token in (ACTIONS, BOT) or token in api.minted):
            raise Refusal(403, "Resource not accessible by integration")
        if request.method != "GET" and token == READER:
            raise Refusal(403, "Resource not accessible by personal access token")
        if request.method == "POST" and template.endswith("/pulls") and token == ACTIONS:
            raise Refusal(403, "GitHub Actions is not permitted to create or approve pull requests.")
        twin_app.check_permission(api, token, request.method, template)
        return login

    def _limit(self) -> None:
        """Count a write.

        Raises:
            Refusal: it is one too many.
        """
        api = self.twin.api
        if api.secondary_limit_after is not None and api.writes >= api.secondary_limit_after:
            api.secondary_limit_after = None
            raise Refusal(
                403,
                "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
                headers={"Retry-After": "1"},
            )
        api.writes += 1

    def _violation(self, request: Request, faults: list[str]) -> tuple[int, Any]:
        self.twin.violations += [f"{request.method} {request.path}?{request.query}: {one}" for one in faults]
        return 400, {"message": "the twin found: " + "; ".join(faults), "status": "400"}

    # ---- GraphQL

    def _graphql(self, request: Request) -> tuple[int, Any]:
        api, token = self.twin.api, _token(request.authorization)
        if not api.graphql:
            raise Refusal(404, "Not Found")
        try:
            request.body = json.loads(request.body or b"null")
        except ValueError:
            return self._violation(request, ["the body is not JSON"])
        faults = self._header_faults(("application/vnd.github+json", "application/json"))
        faults += graphql_oracle.faults(request.body)
        if faults or request.method != "POST":
            return self._violation(request, faults or ["the method is not POST"])
        if not token:
            raise Refusal(401, "This endpoint requires you to be authenticated.")
        login, query = self.twin.login(token), request.body["query"]
        if not api.update_refs and (unknown := twin_graphql.without_update_refs(query)):
            return 200, unknown
        if graphql_oracle.mutations(query):
            self._limit()
        done = twin_graphql.answer(api, request.body, login=login, token=token, reads_only=token == READER)
        api.settle(login)
        return self._violation(request, list(done.faults)) if done.faults else (200, done.answer)

    # ---- git

    def _git(self, request: Request, body: bytes) -> Reply:
        api, token = self.twin.api, _token(request.authorization)
        prefix, plain = f"/{api.owner}/{api.name}.git", {"Content-Type": "text/plain"}
        writes = "git-receive-pack" in request.path + request.query
        try:
            login = self.twin.login(token)
            twin_app.check_permission(api, token, "POST" if writes else "GET", "/git")
        except Refusal as refusal:
            if refusal.status == 401:
                return Reply(401, b"", {"WWW-Authenticate": 'Basic realm="GitHub"'})
            return Reply(403, b"Write access to repository not granted.", plain)
        if not request.path.startswith(f"{prefix}/"):
            return Reply(404, b"Repository not found.", plain)
        if writes and token == READER:
            return Reply(403, b"Write access to repository not granted.", plain)
        path = request.path.removeprefix(prefix)
        status, content, headers = twin_git_http.backend(
            api, request.method, path, request.query, dict(self.headers), body
        )
        if writes:
            api.settle(login)
        # On a connection that served before, git's library sends again what found no answer, and hides the fault.
        return Reply(status, content, headers | {"Connection": "close"})

    # ---- answers

    def _send(self, reply: Reply, fault: Fault | None) -> None:
        if fault and fault.kind == "lost":
            self.close_connection = True
            return
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.status != 204:
            self.send_header("Content-Length", str(len(reply.content)))
        self.end_headers()
        content = reply.content
        if fault and fault.kind == "cut":
            self.close_connection = True
            content = content[: len(content) // 2]
        self.wfile.write(content)


def _failed(fault: Fault) -> Reply:
    if fault.kind == "html":
        return Reply(200, b"<html>Please log in</html>", {"Content-Type": "text/html"})
    answer = {"message": fault.message, "documentation_url": "https://docs.github.com/rest"}
    return Reply(fault.status, json.dumps(answer).encode(), JSON | fault.headers)


def _token(authorization: str) -> str:
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except ValueError:
            return ""
    return value if scheme.lower() in ("bearer", "token") else ""
