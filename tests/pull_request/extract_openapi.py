"""Cuts `openapi.json` out of GitHub's own description of its REST API: only the operations that are needed.

The description is the npm package `@octokit/openapi` (MIT License, in `openapi.LICENSE`), which carries
github/rest-api-description (MIT License by its `info.license`). To renew:

    npm pack @octokit/openapi && tar xf octokit-openapi-*.tgz
    python -m tests.pull_request.extract_openapi package/generated/api.github.com.json

What it cuts off: words, examples and links. OpenAPI 3.0 says `nullable`; JSON Schema, with which answers are checked,
says `type: [..., null]`, so that is rewritten.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

OPERATIONS = (
    ("get", "/user"),
    ("get", "/repos/{owner}/{repo}"),
    ("get", "/repos/{owner}/{repo}/pulls"),
    ("post", "/repos/{owner}/{repo}/pulls"),
    ("get", "/repos/{owner}/{repo}/pulls/{pull_number}"),
    ("patch", "/repos/{owner}/{repo}/pulls/{pull_number}"),
    ("get", "/repos/{owner}/{repo}/git/ref/{ref}"),
    ("get", "/repos/{owner}/{repo}/issues/{issue_number}/comments"),
    ("post", "/repos/{owner}/{repo}/issues/{issue_number}/comments"),
    ("patch", "/repos/{owner}/{repo}/issues/comments/{comment_id}"),
    ("post", "/repos/{owner}/{repo}/issues/{issue_number}/labels"),
    ("delete", "/repos/{owner}/{repo}/issues/{issue_number}/labels/{name}"),
    ("post", "/repos/{owner}/{repo}/issues/{issue_number}/assignees"),
    ("get", "/repos/{owner}/{repo}/issues/{issue_number}/events"),
    ("post", "/repos/{owner}/{repo}/pulls/{pull_number}/requested_reviewers"),
    ("post", "/repos/{owner}/{repo}/git/trees"),
    ("post", "/repos/{owner}/{repo}/git/commits"),
    ("get", "/repos/{owner}/{repo}/git/commits/{commit_sha}"),
    ("post", "/repos/{owner}/{repo}/git/refs"),
    ("patch", "/repos/{owner}/{repo}/git/refs/{ref}"),
    ("delete", "/repos/{owner}/{repo}/git/refs/{ref}"),
    ("get", "/repos/{owner}/{repo}/installation"),
    ("post", "/app/installations/{installation_id}/access_tokens"),
    ("delete", "/installation/token"),
)
WORDS = ("description", "summary", "example", "examples", "externalDocs", "title", "deprecated", "x-github")
LICENCE = "MIT License, see openapi.LICENSE; from npm @octokit/openapi, cut by extract_openapi.py"


def extract(description: dict[str, Any]) -> dict[str, Any]:
    """The operations, and of the components those that they refer to."""
    paths: dict[str, Any] = {}
    for method, path in OPERATIONS:
        paths.setdefault(path, {})[method] = _operation(description, description["paths"][path][method])
    schemas: dict[str, Any] = {}
    waiting = _names(paths)
    while waiting:
        name = waiting.pop()
        if name not in schemas:
            schemas[name] = _schema(description["components"]["schemas"][name])
            waiting |= _names(schemas[name])
    version = description["info"]["version"]
    return {
        "licence": LICENCE,
        "version": version,
        "paths": paths,
        "components": {"schemas": dict(sorted(schemas.items()))},
    }


def _operation(description: dict[str, Any], operation: dict[str, Any]) -> dict[str, Any]:
    parameters = [_resolved(description, one) for one in operation.get("parameters", [])]
    kept: dict[str, Any] = {
        "parameters": [
            {
                "name": one["name"],
                "in": one["in"],
                "required": one.get("required", False),
                "schema": _schema(one["schema"]),
            }
            for one in parameters
        ],
        "responses": {
            status: _content(_resolved(description, answer))
            for status, answer in operation["responses"].items()
        },
    }
    if "requestBody" in operation:
        kept["requestBody"] = _content(operation["requestBody"])
        kept["bodyRequired"] = operation["requestBody"].get("required", False)
    return kept


def _resolved(description: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in value:
        return value
    _, _, kind, name = value["$ref"].split("/")
    found: dict[str, Any] = description["components"][kind][name]
    return found


def _content(value: dict[str, Any]) -> Any:
    """The schema of a body; None where there is no body."""
    return _schema(value.get("content", {}).get("application/json", {}).get("schema"))


def _schema(value: Any) -> Any:
    if isinstance(value, list):
        return [_schema(one) for one in value]
    if not isinstance(value, dict):
        return value
    kept = {
        key: {name: _schema(one) for name, one in inner.items()} if key == "properties" else _schema(inner)
        for key, inner in value.items()
        if key not in WORDS or (key == "title" and isinstance(inner, dict))
    }
    if kept.pop("nullable", False):
        if isinstance(kept.get("type"), str) and "enum" not in kept:
            kept["type"] = [kept["type"], "null"]
        else:
            kept = {"anyOf": [kept, {"type": "null"}]}
    return kept


def _names(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*(_names(one) for one in value))
    if not isinstance(value, dict):
        return set()
    found = set().union(*(_names(one) for one in value.values()))
    reference = value.get("$ref")
    return found | {reference.rsplit("/", 1)[1]} if isinstance(reference, str) else found


if __name__ == "__main__":
    source, target = Path(sys.argv[1]), Path(__file__).with_name("openapi.json")
    target.write_text(
        json.dumps(extract(json.loads(source.read_bytes())), indent=None, separators=(",", ":")) + "\n"
    )
    print(f"{target}: {target.stat().st_size} bytes")
