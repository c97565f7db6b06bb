"""`work`: what a call of a kernel's op must do, where its signature does not tell."""

from __future__ import annotations

from pytest_cgins.config.document import Value
from pytest_cgins.config.model import DeclaredWork
from pytest_cgins.core.expression import ExpressionError, amount, parse


def declared_work(value: Value | None, kernel: str) -> DeclaredWork:
    """`work: {bytes: EXPRESSION, flops: EXPRESSION}`.

    What a call is needed for is found out at the call; what is wrong with an expression in itself is told here.

    Raises:
        ConfigError: an unknown key, no expression, or a number that is no amount; with file, line and remedy.
    """
    if value is None:
        return DeclaredWork()
    section = value.mapping(f'work of kernel "{kernel}"')
    section.refuse_unknown(("bytes", "flops"))
    nbytes, flops = section.get("bytes"), section.get("flops")
    if nbytes is None and flops is None:
        section.fail(
            f"{section.title} is empty", remedy="write {bytes: EXPRESSION}, {flops: EXPRESSION} or both"
        )
    return DeclaredWork(
        nbytes=_expression(nbytes) if nbytes else "", flops=_expression(flops) if flops else ""
    )


def _expression(value: Value) -> str:
    text = value.scalar()
    if value.node.tag.rpartition(":")[2] in ("bool", "null") or not text.strip():
        _refuse(value, text or "empty", "no expression")
    try:
        parsed = parse(text)
        if not parsed.names:
            amount(parsed, {})
    except ExpressionError as error:
        _refuse(value, text, str(error))
    return text.strip()


def _refuse(value: Value, text: str, why: str) -> None:
    value.fail(
        f'"{value.key}" in {value.section.title} is {text[:80]}: {why}',
        remedy="write arithmetic over the op's arguments, e.g. 2 * input.numel() * input.itemsize, or a number: 2e9",
    )
