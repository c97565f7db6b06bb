"""Cuts `graphql.graphql` out of GitHub's schema of its GraphQL API: only what the needed operations reach.

The schema is the npm package `@octokit/graphql-schema` (MIT License, which goes to the top of the file). To renew:

    npm pack @octokit/graphql-schema && tar xf octokit-graphql-schema-*.tgz
    python -m tests.pull_request.extract_graphql package

What it cuts off: words, directives, interfaces, and fields of large types that are not in `FIELDS`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from graphql import (
    DocumentNode,
    EnumTypeDefinitionNode,
    FieldDefinitionNode,
    InputObjectTypeDefinitionNode,
    InputValueDefinitionNode,
    InterfaceTypeDefinitionNode,
    ObjectTypeDefinitionNode,
    ScalarTypeDefinitionNode,
    TypeDefinitionNode,
    build_schema,
    parse,
    print_ast,
)

FIELDS = {
    "Query": ("viewer",),
    "Mutation": ("createCommitOnBranch", "updateRefs"),
    "User": ("id", "login", "name", "url"),
    "Commit": (
        "abbreviatedOid", "author", "committer", "id", "message", "messageBody", "messageHeadline", "oid", "parents",
        "signature", "tree", "url",
    ),
    "CommitConnection": ("nodes", "totalCount"),
    "GitActor": ("email", "name"),
    "GitObject": ("abbreviatedOid", "id", "oid"),
    "Ref": ("id", "name", "prefix", "target"),
    "Tree": ("abbreviatedOid", "id", "oid"),
}  # fmt: skip
"""What is kept of a type; of others, all."""
INTERFACES = ("GitObject", "GitSignature")
ROOTS = ("Query", "Mutation", "GpgSignature")
"""Where to begin; the last one is the only kind of signature that the twin makes."""


def extract(document: DocumentNode) -> str:
    """The schema of the operations."""
    types = {one.name.value: one for one in document.definitions if isinstance(one, TypeDefinitionNode)}
    kept: dict[str, str] = {}
    waiting = list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name in types and name not in kept:
            kept[name], found = _cut(types[name])
            waiting += found
    return "\n\n".join(kept[name] for name in sorted(kept))


def _cut(node: TypeDefinitionNode) -> tuple[str, list[str]]:
    """The text of one type, cut down, and names of the types that are left in it."""
    name = node.name.value
    if isinstance(node, ScalarTypeDefinitionNode):
        return f"scalar {name}", []
    if isinstance(node, EnumTypeDefinitionNode):
        return _block(f"enum {name}", [one.name.value for one in node.values or ()]), []
    if isinstance(node, InputObjectTypeDefinitionNode):
        return _block(f"input {name}", [_value(one) for one in node.fields or ()]), _names(node.fields or ())
    assert isinstance(node, (ObjectTypeDefinitionNode, InterfaceTypeDefinitionNode)), name
    fields = [one for one in node.fields or () if one.name.value in FIELDS.get(name, (one.name.value,))]
    interfaces = [one.name.value for one in node.interfaces or () if one.name.value in INTERFACES]
    head = f"{'type' if isinstance(node, ObjectTypeDefinitionNode) else 'interface'} {name}"
    if interfaces:
        head += f" implements {' & '.join(interfaces)}"
    arguments = [argument for one in fields for argument in one.arguments or ()]
    return _block(head, [_field(one) for one in fields]), _names(fields) + _names(arguments) + interfaces


def _block(head: str, lines: list[str]) -> str:
    return "\n".join([f"{head} {{", *(f"  {one}" for one in lines), "}"])


def _field(one: FieldDefinitionNode) -> str:
    arguments = f"({', '.join(_value(argument) for argument in one.arguments)})" if one.arguments else ""
    return f"{one.name.value}{arguments}: {print_ast(one.type)}"


def _value(one: InputValueDefinitionNode) -> str:
    default = f" = {print_ast(one.default_value)}" if one.default_value else ""
    return f"{one.name.value}: {print_ast(one.type)}{default}"


def _names(nodes: Iterable[FieldDefinitionNode | InputValueDefinitionNode]) -> list[str]:
    """Types of fields or of arguments, without brackets and exclamation marks."""
    return [print_ast(one.type).strip("[]!") for one in nodes]


def main() -> None:
    """Write the file anew."""
    package, target = Path(sys.argv[1]), Path(__file__).with_name("graphql.graphql")
    text = extract(parse((package / "schema.graphql").read_text()))
    build_schema(text)
    version = json.loads((package / "package.json").read_bytes())["version"]
    origin = f"From npm @octokit/graphql-schema {version}, cut by extract_graphql.py.\n\n"
    licence = (origin + (package / "LICENSE.md").read_text()).strip().splitlines()
    target.write_text("".join(f"# {one}".rstrip() + "\n" for one in licence) + "\n" + text.strip() + "\n")
    print(f"{target}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
