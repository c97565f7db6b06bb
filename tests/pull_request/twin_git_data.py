"""Blobs, trees, commits and refs of the twin: GitHub's git data API over the bare repository."""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tests.pull_request.oracle import WHEN, filled
from tests.pull_request.twin_state import DECLINED, ZERO, Call, Refusal, State, not_found

SIGNATURE = "-----BEGIN PGP SIGNATURE-----\n\ntwin\n-----END PGP SIGNATURE-----"
"""The twin's own; no key belongs to it."""
_SHA = re.compile(r"[0-9a-f]{40}")
_KINDS = {"100644": "blob", "100755": "blob", "120000": "blob", "040000": "tree", "160000": "commit"}


# ---- blobs and trees


def write_blob(api: State, content: str | bytes) -> str:
    return api.git("hash-object", "-w", "--stdin", given=content)


def create_tree(api: State, call: Call) -> tuple[int, Any]:
    body = call.body
    base = body.get("base_tree", "")
    if base and not (_SHA.fullmatch(base) and any(api.has(base, kind) for kind in ("tree", "commit"))):
        raise Refusal(422, "base_tree is not a valid tree oid")
    if not body["tree"] and not base:
        raise Refusal(422, "Invalid tree info")
    changes = [_entry(api, one) for one in body["tree"]]
    sha = write_tree(api, base, changes)
    entries = []
    for line in api.git("ls-tree", "-z", sha).split("\0"):
        if line:
            about, path = line.split("\t", 1)
            mode, kind, one = about.split()
            entries.append({"path": path, "mode": mode, "type": kind, "sha": one, "url": api.url})
    return 201, {"sha": sha, "url": f"{api.url}/git/trees/{sha}", "tree": entries, "truncated": False}


def _entry(api: State, one: dict[str, Any]) -> tuple[str, str, str | None]:
    """Path, mode, and object of an entry; None to remove it."""
    path, mode = one.get("path", ""), one.get("mode", "")
    if ("sha" in one) == ("content" in one):
        raise Refusal(422, "Must supply either tree.sha or tree.content, and not both")
    if any(part in ("", ".", "..", ".git") for part in path.split("/")):
        raise Refusal(422, "tree.path contains a malformed path component")
    if "content" in one:
        return path, mode or "100644", write_blob(api, one["content"])
    if one["sha"] is None:
        return path, mode, None
    if mode not in _KINDS:
        raise Refusal(422, "Must supply a valid tree.mode")
    if not (_SHA.fullmatch(one["sha"]) and api.has(one["sha"], _KINDS[mode])):
        raise Refusal(422, f"tree.sha {one['sha']} is not a valid {_KINDS[mode]}")
    return path, mode, one["sha"]


def write_tree(api: State, base: str, changes: list[tuple[str, str, str | None]]) -> str:
    """A tree from another one and changes of it: path, mode, and object or None.

    Raises:
        Refusal: what is to be removed is not there, or paths exclude each other.
    """
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        if base:
            api.git("read-tree", base, environment=index)
        there = set(filter(None, api.git("ls-files", "-z", environment=index).split("\0")))
        lines = []
        for path, mode, sha in changes:
            gone = [one for one in there if one == path or one.startswith(f"{path}/")]
            if sha is None and not gone:
                raise Refusal(422, "GitRPC::BadObjectState")
            if sha is None or mode == "040000":
                lines += [f"0 {ZERO}\t{one}" for one in gone]
            if sha is not None:
                lines += _lines(api, path, mode, sha)
        given = "".join(f"{line}\0" for line in lines)
        try:
            api.git(
                "update-index", "--add", "--replace", "-z", "--index-info", given=given, environment=index
            )
            return api.git("write-tree", environment=index)
        except subprocess.CalledProcessError:
            raise Refusal(422, "GitRPC::BadObjectState") from None


def _lines(api: State, path: str, mode: str, sha: str) -> list[str]:
    """For the index, of one file, or of each file of a tree."""
    if mode != "040000":
        return [f"{mode} {sha}\t{path}"]
    found = []
    for line in filter(None, api.git("ls-tree", "-r", "-z", sha).split("\0")):
        about, below = line.split("\t", 1)
        found.append(f"{about.split()[0]} {about.split()[2]}\t{path}/{below}")
    return found


# ---- commits


def create_commit(api: State, call: Call) -> tuple[int, Any]:
    body = call.body
    if not (_SHA.fullmatch(body["tree"]) and api.has(body["tree"], "tree")):
        raise Refusal(422, "Tree SHA does not exist")
    for one in body.get("parents", []):
        if not (_SHA.fullmatch(one) and api.has(one, "commit")):
            raise Refusal(422, "Parent SHA does not exist or is not a commit object")
    own = {"name": call.login, "email": api.address(call.login)}
    author = body.get("author", own)
    committer = body.get("committer", author)
    # GitHub signs what a bot commits in its own name.
    signed = call.login.endswith("[bot]") and "author" not in body and "committer" not in body
    sha = write_commit(
        api,
        tree=body["tree"],
        parents=body.get("parents", []),
        author=author,
        committer=committer,
        message=body["message"],
        signature=SIGNATURE if signed else body.get("signature", ""),
    )
    return 201, shown_commit(api, sha)


def write_commit(
    api: State,
    *,
    tree: str,
    parents: list[str],
    author: dict[str, str],
    committer: dict[str, str],
    message: str,
    signature: str = "",
) -> str:
    """The new commit."""
    lines = [f"tree {tree}", *(f"parent {one}" for one in parents)]
    lines += [f"author {_person(author)}", f"committer {_person(committer)}"]
    if signature:
        lines.append("gpgsig " + signature.strip().replace("\n", "\n "))
    content = "\n".join([*lines, "", message])
    return api.git("hash-object", "-t", "commit", "-w", "--stdin", given=content)


def _person(one: dict[str, str]) -> str:
    when = one.get("date")
    at = time.time() if when is None else datetime.fromisoformat(when.replace("Z", "+00:00")).timestamp()
    return f"{one['name']} <{one['email']}> {int(at)} +0000"


def get_commit(api: State, call: Call) -> tuple[int, Any]:
    sha = call.path["commit_sha"]
    if not (_SHA.fullmatch(sha) and api.has(sha, "commit")):
        raise not_found()
    return 200, shown_commit(api, sha)


def shown_commit(api: State, sha: str) -> dict[str, Any]:
    raw = api.git("cat-file", "commit", sha)
    head, _, message = raw.partition("\n\n")
    # A signature has an empty line, which is a line of one blank in the header.
    fields = re.findall(r"^(\S+) (.*(?:\n .*)*)", head, re.MULTILINE)
    found = {name: value.replace("\n ", "\n") for name, value in fields}
    known = {
        "sha": sha,
        "url": f"{api.url}/git/commits/{sha}",
        "author": _shown_person(found["author"]),
        "committer": _shown_person(found["committer"]),
        "message": message,
        "tree": {"sha": found["tree"], "url": api.url},
        "parents": [
            {"sha": value, "url": api.url, "html_url": api.url} for name, value in fields if name == "parent"
        ],
        "verification": verification(found.get("gpgsig", ""), raw),
    }
    return filled("git-commit", known, url=api.url)


def _shown_person(text: str) -> dict[str, str]:
    match = re.fullmatch(r"(.*) <(.*)> (\d+) [+-]\d{4}", text)
    assert match, text
    when = datetime.fromtimestamp(int(match[3]), timezone.utc)
    return {"name": match[1], "email": match[2], "date": when.strftime("%Y-%m-%dT%H:%M:%SZ")}


def verification(signature: str, raw: str) -> dict[str, Any]:
    """What GitHub says of a commit's signature."""
    if not signature:
        return {
            "verified": False, "reason": "unsigned", "signature": None, "payload": None, "verified_at": None
        }  # fmt: skip
    good = signature == SIGNATURE
    return {
        "verified": good,
        "reason": "valid" if good else "unknown_key",
        "signature": signature,
        "payload": re.sub(r"^gpgsig .*(?:\n .*)*\n", "", raw, count=1, flags=re.MULTILINE),
        "verified_at": WHEN if good else None,
    }


# ---- refs


def get_ref(api: State, call: Call) -> tuple[int, Any]:
    ref = f"refs/{call.path['ref']}"
    if not resolved(api, ref):
        raise not_found()
    return 200, _shown_ref(api, ref)


def create_ref(api: State, call: Call) -> tuple[int, Any]:
    ref, sha = call.body["ref"], call.body["sha"]
    if not (ref.startswith("refs/") and ref.count("/") >= 2):
        raise Refusal(422, "Reference name must start with 'refs/' and have at least two slashes")
    if resolved(api, ref):
        raise Refusal(422, "Reference already exists")
    update(api, [(ref, ZERO, sha)])
    return 201, _shown_ref(api, ref)


def update_ref(api: State, call: Call) -> tuple[int, Any]:
    ref, sha = f"refs/{call.path['ref']}", call.body["sha"]
    before = resolved(api, ref)
    if not before:
        raise Refusal(422, "Reference does not exist")
    if not (_SHA.fullmatch(sha) and api.has(sha, "commit")):
        raise Refusal(422, "Object does not exist")
    if not call.body.get("force") and not api.contains(before, sha):
        raise Refusal(422, "Update is not a fast forward")
    update(api, [(ref, before, sha)])
    return 200, _shown_ref(api, ref)


def delete_ref(api: State, call: Call) -> tuple[int, Any]:
    ref = f"refs/{call.path['ref']}"
    before = resolved(api, ref)
    if not before:
        raise Refusal(422, "Reference does not exist")
    update(api, [(ref, before, ZERO)])
    return 204, None


def resolved(api: State, ref: str) -> str:
    """The commit of a full ref; "" if there is none."""
    return api.refs().get(ref, "")


def update(api: State, changes: list[tuple[str, str, str]]) -> None:
    """Change refs, all or none: name, commit before, and commit after, which are zeros for none.

    Raises:
        Refusal: a branch is protected, a commit is not there, or a name is none.
    """
    for ref, _, after in changes:
        if ref.removeprefix("refs/heads/") in api.protected:
            raise Refusal(422, f"Repository rule violations found\n\n{DECLINED}\n\n")
        if after != ZERO and not (_SHA.fullmatch(after) and api.has(after, "commit")):
            raise Refusal(422, "Object does not exist")
    lines = ["start", *(f"update {ref} {after} {before}" for ref, before, after in changes), "commit"]
    try:
        api.git("update-ref", "--stdin", given="\n".join(lines) + "\n")
    except subprocess.CalledProcessError:
        raise Refusal(422, "Reference update failed") from None


def _shown_ref(api: State, ref: str) -> dict[str, Any]:
    there = {"type": "commit", "sha": resolved(api, ref), "url": api.url}
    return filled("git-ref", {"ref": ref, "object": there}, url=api.url)


ROUTES = {
    ("POST", "/git/trees"): create_tree,
    ("POST", "/git/commits"): create_commit,
    ("GET", "/git/commits/{commit_sha}"): get_commit,
    ("GET", "/git/ref/{ref}"): get_ref,
    ("POST", "/git/refs"): create_ref,
    ("PATCH", "/git/refs/{ref}"): update_ref,
    ("DELETE", "/git/refs/{ref}"): delete_ref,
}
