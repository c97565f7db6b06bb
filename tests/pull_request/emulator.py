"""An emulator of GitHub that others wrote, npm's `emulate`, with git over HTTP and GitHub's own description in front.

The emulator knows REST and hashes objects as git does, but serves no git. So what it has is kept the same as what a bare
repository has: before git is asked, the emulator's branches are written there, and after a push they are sent back. Each
object must get the same id on both sides. There is no GraphQL: the front says 404, as old servers do.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.action.github_parsers import installed
from tests.pull_request import oracle, twin_git_http
from tests.pull_request.twin import Handler, Request, _Server, _token
from tests.pull_request.twin_api import Api

NODE = Path(__file__).parent / "node"
API = "/api/v3"
OWNER, NAME = "octo", "kernels"
BOT, PERSON = "emulator-bot", "emulator-person"
"""Tokens: of an App's user, and of a person."""
APP, INSTALLATION = 4711, 12
PERMISSIONS = {"contents": "write", "pull_requests": "write"}
SEED = {
    "tokens": {BOT: {"login": "cgins[bot]"}, PERSON: {"login": "ada"}},
    "github": {
        "users": [{"login": "cgins[bot]"}, {"login": "ada"}, {"login": "grace"}],
        "orgs": [
            {
                "login": OWNER,
                "members": [{"login": "cgins[bot]", "role": "admin"}, {"login": "ada", "role": "admin"}],
            }
        ],
        "repos": [{"owner": OWNER, "name": NAME, "auto_init": False}],
        "apps": [
            {
                "app_id": APP,
                "slug": "cgins-app",
                "name": "cgins",
                "permissions": PERMISSIONS,
                "installations": [{"installation_id": INSTALLATION, "account": OWNER}],
            }
        ],
    },
}
"""What the emulator begins with: three users, an organisation with an empty repository, and an App."""


class Emulator:
    """A running emulator."""

    def __init__(self, port: int, keys: Mapping[str, str]) -> None:
        self.port = port
        self.keys = keys
        """Private keys of Apps by their ids, PEM."""

    def forward(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, bytes, dict[str, str]]:
        """Status, content and headers of its answer."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.read(), dict(answer.getheaders())
        finally:
            connection.close()

    def call(self, method: str, path: str, content: object = None, *, token: str = PERSON) -> Any:
        """What it answers about the repository: decoded JSON, None for none."""
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        body = None if content is None else json.dumps(content).encode()
        status, answer, _ = self.forward(method, f"/repos/{OWNER}/{NAME}{path}", headers, body)
        assert status < 300, f"{method} {path}: status {status}: {answer[:500]!r}"
        return json.loads(answer) if answer else None

    def branches(self) -> dict[str, str]:
        """Tips by branch."""
        refs = self.call("GET", "/git/matching-refs/heads/")
        return {one["ref"].removeprefix("refs/heads/"): one["object"]["sha"] for one in refs}


@contextmanager
def emulator(url: str) -> Iterator[Emulator]:
    """Start an emulator on loopback.

    Args:
        url: what its answers say that its address is.

    Raises:
        Unavailable: node, npm or the package is missing.
    """
    place = installed(NODE)
    process = subprocess.Popen(
        ["node", str(NODE / "emulate.mjs"), str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps({"seed": SEED, "url": url}) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, "the emulator ended before it listened"
        yield Emulator(**json.loads(line))
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


class Mirror:
    """A bare repository and an emulator that have the same branches; every object has the same id in both."""

    def __init__(self, bare: Path, emulated: Emulator) -> None:
        self._bare = bare
        self._emulated = emulated
        self._same: set[str] = set()
        """Objects that are in both."""

    def send(self) -> None:
        """Give the emulator the branches of the repository."""
        theirs = self._emulated.branches()
        ours = self._branches()
        for name, tip in ours.items():
            for commit in self._git("rev-list", "--reverse", "--topo-order", tip).decode().split():
                self._once(commit, self._send_commit)
            if name not in theirs:
                self._emulated.call("POST", "/git/refs", {"ref": f"refs/heads/{name}", "sha": tip})
            elif theirs[name] != tip:
                self._emulated.call("PATCH", f"/git/refs/heads/{name}", {"sha": tip, "force": True})
        for name in theirs.keys() - ours.keys():
            self._emulated.call("DELETE", f"/git/refs/heads/{name}")

    def fetch(self) -> None:
        """Give the repository the branches of the emulator."""
        theirs = self._emulated.branches()
        ours = self._branches()
        for name, tip in theirs.items():
            if ours.get(name) != tip:
                self._once(tip, self._fetch_commit)
                self._git("update-ref", f"refs/heads/{name}", tip)
        for name in ours.keys() - theirs.keys():
            self._git("update-ref", "-d", f"refs/heads/{name}")

    # ---- from git to the emulator

    def _send_commit(self, commit: str) -> str:
        head, _, message = self._git("cat-file", "commit", commit).decode().partition("\n\n")
        lines = [line.split(" ", 1) for line in head.split("\n")]
        fields = dict(lines)
        self._once(fields["tree"], self._send_tree)
        content = {
            "message": message,
            "tree": fields["tree"],
            "parents": [value for name, value in lines if name == "parent"],
            "author": _identity(fields["author"]),
            "committer": _identity(fields["committer"]),
        }
        return str(self._emulated.call("POST", "/git/commits", content)["sha"])

    def _send_tree(self, tree: str) -> str:
        entries = []
        for line in self._git("ls-tree", "-z", tree).decode().split("\0")[:-1]:
            about, path = line.split("\t", 1)
            mode, kind, one = about.split(" ")
            self._once(one, self._send_tree if kind == "tree" else self._send_blob)
            entries.append({"path": path, "mode": mode, "type": kind, "sha": one})
        return str(self._emulated.call("POST", "/git/trees", {"tree": entries})["sha"])

    def _send_blob(self, blob: str) -> str:
        content = base64.b64encode(self._git("cat-file", "blob", blob)).decode()
        made = self._emulated.call("POST", "/git/blobs", {"content": content, "encoding": "base64"})
        return str(made["sha"])

    # ---- from the emulator to git

    def _fetch_commit(self, commit: str) -> str:
        found = self._emulated.call("GET", f"/git/commits/{commit}")
        tree, parents = found["tree"]["sha"], [one["sha"] for one in found["parents"]]
        for parent in parents:
            self._once(parent, self._fetch_commit)
        self._once(tree, self._fetch_tree)
        lines = [f"tree {tree}", *(f"parent {one}" for one in parents)]
        lines += [f"{role} {_signature(found[role])}" for role in ("author", "committer")]
        # The emulator hashes a message with a line end, and shows it as it came.
        message = found["message"] if found["message"].endswith("\n") else f"{found['message']}\n"
        raw = "\n".join((*lines, "", message)).encode()
        return self._git("hash-object", "-t", "commit", "-w", "--stdin", given=raw).decode().strip()

    def _fetch_tree(self, tree: str) -> str:
        lines = []
        for one in self._emulated.call("GET", f"/git/trees/{tree}")["tree"]:
            self._once(one["sha"], self._fetch_tree if one["type"] == "tree" else self._fetch_blob)
            lines.append(f"{one['mode']} {one['type']} {one['sha']}\t{one['path']}\0")
        return self._git("mktree", "-z", given="".join(lines).encode()).decode().strip()

    def _fetch_blob(self, blob: str) -> str:
        content = base64.b64decode(self._emulated.call("GET", f"/git/blobs/{blob}")["content"])
        return self._git("hash-object", "-w", "--stdin", given=content).decode().strip()

    # ---- both

    def _once(self, identifier: str, copy: Any) -> None:
        if identifier not in self._same:
            copied = copy(identifier)
            assert copied == identifier, f"{identifier} became {copied} on the other side"
            self._same.add(identifier)

    def _branches(self) -> dict[str, str]:
        listed = self._git("for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/heads")
        return dict(line.split(" ") for line in listed.decode().splitlines())

    def _git(self, *arguments: str, given: bytes = b"") -> bytes:
        done = subprocess.run(
            ["git", "-C", str(self._bare), *arguments], input=given, capture_output=True, check=True
        )
        return done.stdout


def _identity(line: str) -> dict[str, str]:
    """`NAME <EMAIL> SECONDS +HHMM` of a commit, as the API takes it."""
    found = re.fullmatch(r"(.*) <(.*)> (\d+) ([+-])(\d\d)(\d\d)", line)
    assert found is not None, line
    name, email, seconds, sign, hours, minutes = found.groups()
    offset = timedelta(hours=int(hours), minutes=int(minutes)) * (-1 if sign == "-" else 1)
    when = datetime.fromtimestamp(int(seconds), timezone(offset))
    return {"name": name, "email": email, "date": when.isoformat()}


def _signature(person: dict[str, str]) -> str:
    """The other way round."""
    when = datetime.fromisoformat(re.sub(r"(\.\d+)?Z$", "+00:00", person["date"]))
    return f"{person['name']} <{person['email']}> {int(when.timestamp())} {when:%z}"


class Front:
    """A server of REST and git, with the emulator and a bare repository behind it; stands where a twin stands."""

    def __init__(self, bare: Path) -> None:
        self.api = Api(path=bare, owner=OWNER, name=NAME)
        """The bare repository, for git alone."""
        self.requests: list[Request] = []
        self.statuses: list[int] = []
        """Of the answers, in the order of `requests`."""
        self.violations: list[str] = []
        """What is wrong with requests."""
        self.deviations: set[str] = set()
        """Where the emulator answers otherwise than GitHub describes it."""
        self.events: list[dict[str, Any]] | None = None
        """Of any pull request, which the emulator does not tell; None: its own refusal."""
        self.tokens = {BOT, PERSON}
        self.lock = threading.RLock()
        self.server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"front": self}))
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.remote = f"{self.url}/{OWNER}/{NAME}.git"
        self.emulated: Emulator
        self.mirror: Mirror

    def start(self, emulated: Emulator) -> None:
        """Put the repository's objects into an emulator, and serve both."""
        self.emulated, self.mirror = emulated, Mirror(self.api.path, emulated)
        self.mirror.send()
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def answered(self, method: str) -> list[tuple[str, int]]:
        """Path below the repository's, and status, of each REST request with a method."""
        prefix = f"{API}/repos/{OWNER}/{NAME}"
        return [
            (one.path.removeprefix(prefix), status)
            for one, status in zip(self.requests, self.statuses, strict=True)
            if one.method == method and one.path.startswith(f"{API}/")
        ]

    def pull(self, number: int = 1) -> Any:
        """A pull request, as the emulator shows it."""
        return self.emulated.call("GET", f"/pulls/{number}")

    def comments(self) -> list[tuple[str, str]]:
        """Comments of the first pull request: author and text."""
        path = "/issues/1/comments?per_page=100&page="
        found: list[Any] = []
        while page := self.emulated.call("GET", f"{path}{len(found) // 100 + 1}"):
            found += page
            if len(page) < 100:
                break
        return [(one["user"]["login"], one["body"]) for one in found]


@contextmanager
def serve(bare: Path) -> Iterator[Front]:
    """A front of a bare repository and of an emulator with the same objects, until the end of the block."""
    front = Front(bare)
    try:
        with emulator(front.url) as emulated:
            front.start(emulated)
            try:
                yield front
            finally:
                front.server.shutdown()
    finally:
        front.server.server_close()


class _Handler(Handler):
    front: Front

    def serve(self) -> None:
        parts = urlsplit(self.path)
        body = self.body()
        request = Request(self.command, parts.path, parts.query, self.headers.get("Authorization", ""), body)
        with self.front.lock:
            if parts.path.startswith(f"{API}/"):
                status, content, headers = self._rest(request, body)
            elif parts.path == "/api/graphql":
                status, content, headers = 404, b'{"message": "Not Found"}', {}
            else:
                status, content, headers = self._git(request, body)
            self.front.requests.append(request)
            self.front.statuses.append(status)
        self._send(status, content, headers)

    def _rest(self, request: Request, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        path = request.path.removeprefix(API)
        request.body = json.loads(body) if body else None
        found = oracle.operation(request.method, unquote(path))
        faults = ["there is no such operation"]
        if found is not None:
            faults = oracle.request_faults(found[0], request.query, request.body)
        self.front.violations += [f"{request.method} {path}?{request.query}: {one}" for one in faults]
        if self.front.events is not None and path.endswith("/events"):
            return 200, json.dumps(self.front.events).encode(), {}
        status, content, _ = self.front.emulated.forward(
            request.method, self.path.removeprefix(API), dict(self.headers), body or None
        )
        answer = json.loads(content) if content else None
        if found is not None:
            self._compare(f"{request.method} {found[0]['template']}", found[0], status, answer)
        if path.endswith("/access_tokens") and answer is not None and status == 201:
            self.front.tokens.add(answer["token"])
        return status, content, {}

    def _compare(self, name: str, operation: dict[str, Any], status: int, answer: Any) -> None:
        for fault in oracle.answer_faults(operation, status, answer):
            where, _, what = fault.partition(": ")
            kind = "fits no choice" if "is not valid under any" in what else what
            self.front.deviations.add(f"{name} {status} {re.sub(r'[0-9]+', '*', where)}: {kind}")

    def _git(self, request: Request, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        prefix = f"/{OWNER}/{NAME}.git"
        if _token(request.authorization) not in self.front.tokens:
            return 401, b"", {"WWW-Authenticate": 'Basic realm="GitHub"'}
        if not request.path.startswith(f"{prefix}/"):
            return 404, b"Repository not found.", {"Content-Type": "text/plain"}
        self.front.mirror.fetch()
        path = request.path.removeprefix(prefix)
        done = twin_git_http.backend(
            self.front.api, request.method, path, request.query, dict(self.headers), body
        )
        if path == "/git-receive-pack":
            self.front.mirror.send()
        return done

    def _send(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json; charset=utf-8", **headers}.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
