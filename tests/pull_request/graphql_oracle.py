"""GitHub's own schema of its GraphQL API as a judge of documents, variables and answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from graphql import (
    FieldNode,
    GraphQLError,
    OperationDefinitionNode,
    OperationType,
    build_schema,
    execute_sync,
    parse,
    validate,
)

SCHEMA = build_schema(Path(__file__).with_name("graphql.graphql").read_text())
FIELDS = frozenset({"query", "variables", "operationName"})


class Failure(Exception):
    """An error that GitHub has for a document that is right."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Judged:
    """What came of a request."""

    answer: dict[str, Any]
    """As GitHub sends it."""
    faults: tuple[str, ...] = ()
    """What is wrong with the request, or with the resolvers' answer."""


def mutations(query: str) -> set[str]:
    """Names of the mutations in a document; none if it cannot be read."""
    try:
        document = parse(query)
    except GraphQLError:
        return set()
    return {
        field.name.value
        for one in document.definitions
        if isinstance(one, OperationDefinitionNode) and one.operation is OperationType.MUTATION
        for field in one.selection_set.selections
        if isinstance(field, FieldNode)
    }


def faults(body: Any) -> list[str]:
    """What is wrong with the form of a request."""
    if not isinstance(body, dict) or not isinstance(body.get("query"), str):
        return ["the body is no object with a query"]
    found = [f"there is no field {name}" for name in body if name not in FIELDS]
    if not isinstance(body.get("variables") or {}, dict):
        found.append("the variables are no object")
    return found


def judge(body: Mapping[str, Any], resolvers: Mapping[str, Any]) -> Judged:
    """Read a document, hold it against the schema, and execute it.

    Args:
        body: of the request, without faults of form.
        resolvers: of the fields of Query and Mutation, by name; `Failure` is an answer, all else that they raise a fault.
    """
    try:
        document = parse(body["query"])
    except GraphQLError as error:
        return Judged({}, (error.message,))
    if wrong := _wrong(body["query"]):
        return Judged({}, wrong)
    given = body.get("variables") or {}
    declared = {
        variable.variable.name.value
        for one in document.definitions
        if isinstance(one, OperationDefinitionNode)
        for variable in one.variable_definitions or ()
    }
    unknown = tuple(f"the document declares no variable ${name}" for name in given if name not in declared)
    if unknown:
        return Judged({}, unknown)
    done = execute_sync(
        SCHEMA,
        document,
        root_value=resolvers,
        variable_values=given,
        operation_name=body.get("operationName"),
    )
    errors = done.errors or []
    answer: dict[str, Any] = {"data": done.data}
    if errors:
        answer["errors"] = [_shown(one) for one in errors]
    bad = [one.message for one in errors if not isinstance(one.original_error, Failure)]
    return Judged(answer, tuple(bad))


@cache
def _wrong(query: str) -> tuple[str, ...]:
    return tuple(one.message for one in validate(SCHEMA, parse(query)))


def _shown(error: GraphQLError) -> dict[str, Any]:
    known: dict[str, Any] = {
        "path": list(error.path or ()),
        "locations": [{"line": one.line, "column": one.column} for one in error.locations or ()],
        "message": error.message,
    }
    if isinstance(error.original_error, Failure):
        known = {"type": error.original_error.kind, **known}
    return known
