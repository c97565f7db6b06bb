"""The part of GitHub's expression language that the action uses; anything else is an error here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

_TOKEN = re.compile(r"\s*(?:('(?:[^']|'')*')|([A-Za-z_][\w.-]*(?:\(\))?)|(==|!=|&&|\|\||!|\(|\)))")
_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
STATUS_FUNCTIONS = ("success()", "failure()", "always()", "cancelled()")

Value = str | bool


@dataclass
class Context:
    """What expressions can see."""

    inputs: Mapping[str, str]
    steps: dict[str, dict[str, str]] = field(default_factory=dict)
    """Outputs by step id."""
    failed: bool = False
    """Whether a step has failed."""

    def look_up(self, name: str) -> Value:
        if name in STATUS_FUNCTIONS:
            states = (not self.failed, self.failed, True, False)
            return states[STATUS_FUNCTIONS.index(name)]
        root, _, rest = name.partition(".")
        if root == "inputs":
            return self.inputs[rest]
        parts = rest.split(".")
        if root == "steps" and len(parts) == 3 and parts[1] == "outputs":
            return self.steps.get(parts[0], {}).get(parts[2], "")
        raise AssertionError(f"the action uses {name}, which this runner does not know")


def expand(text: str, context: Context) -> str:
    """Replace each `${{ … }}` in a text."""

    def value(match: re.Match[str]) -> str:
        found = evaluate(match[1], context)
        return str(found).lower() if isinstance(found, bool) else found

    return _EXPRESSION.sub(value, text)


def condition(text: str, context: Context) -> bool:
    """An `if:`; without a status function it holds only while no step has failed."""
    whole = _EXPRESSION.fullmatch(text.strip())
    inner = whole[1] if whole else text
    if not any(name in inner for name in STATUS_FUNCTIONS) and context.failed:
        return False
    return bool(evaluate(inner, context))


def evaluate(text: str, context: Context) -> Value:
    """Value of an expression, with GitHub's precedence: `!`, comparison, `&&`, `||`."""
    tokens: list[str] = []
    position = 0
    while position < len(text.rstrip()):
        match = _TOKEN.match(text, position)
        assert match, f"the action uses {text[position:]!r}, which this runner does not know"
        tokens.append(match[0].strip())
        position = match.end()
    parser = _Parser(tokens, context)
    found = parser.either()
    assert not parser.tokens, f"{text!r}: {parser.tokens} is left over"
    return found


class _Parser:
    def __init__(self, tokens: list[str], context: Context) -> None:
        self.tokens = tokens
        self.context = context

    def either(self) -> Value:
        return self._chain("||", self.both, lambda left, right: left or right)

    def both(self) -> Value:
        return self._chain("&&", self.comparison, lambda left, right: left and right)

    def comparison(self) -> Value:
        left = self.operand()
        if self.tokens and self.tokens[0] in ("==", "!="):
            equal = self.tokens.pop(0) == "=="
            right = self.operand()
            # GitHub compares strings without regard to case.
            return (str(left).lower() == str(right).lower()) is equal
        return left

    def operand(self) -> Value:
        token = self.tokens.pop(0)
        if token == "!":
            return not self.operand()
        if token == "(":
            found = self.either()
            assert self.tokens.pop(0) == ")"
            return found
        return token[1:-1].replace("''", "'") if token.startswith("'") else self.context.look_up(token)

    def _chain(
        self, operator: str, part: Callable[[], Value], join: Callable[[Value, Value], Value]
    ) -> Value:
        found = part()
        while self.tokens and self.tokens[0] == operator:
            self.tokens.pop(0)
            found = join(found, part())
        return found
