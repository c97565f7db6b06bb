"""What was tried before: a line each, what must not be tried again, and what the helper advised."""

from __future__ import annotations

from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.prompts import blocks
from pytest_cgins.regenerate.prompts.context import Context

_MOST_ATTEMPTS = 8
_MOST_AVOIDED = 20
_MOST_ADVICE = 4000


def described(context: Context) -> str:
    """All of it; "" before the first attempt."""
    return blocks.section("What was tried", [_attempts(context), _avoid(context), _advice(context)])


def _attempts(context: Context) -> str:
    shown = context.attempts[-_MOST_ATTEMPTS:]
    if not shown:
        return ""
    lines = [
        f"{one.number}. {one.goal}: {one.outcome} ({one.reason}): {blocks.one_line(one.message, 240)}"
        for one in shown
    ]
    if len(shown) < len(context.attempts):
        lines.insert(
            0,
            f"({counted(len(context.attempts) - len(shown), 'earlier one is', 'earlier ones are')} left out)",
        )
    digests = [one.digest for one in context.attempts if one.digest]
    if len(set(digests)) < len(digests):
        lines.append("(the same source was sent more than once)")
    return blocks.data("Attempts", blocks.without_paths("\n".join(lines), context.top))


def _avoid(context: Context) -> str:
    avoided = list(
        dict.fromkeys(blocks.one_line(line, 300) for advice in context.advices for line in advice.avoid)
    )
    if not avoided:
        return ""
    listed = "\n".join(f"- {line}" for line in avoided[-_MOST_AVOIDED:])
    return blocks.data("Do not repeat: tried, and wrong", blocks.without_paths(listed, context.top))


def _advice(context: Context) -> str:
    if not context.advices or not context.advices[-1].text.strip():
        return ""
    text = blocks.without_paths(blocks.head(context.advices[-1].text.strip(), _MOST_ADVICE), context.top)
    return blocks.data(
        "A reviewer read the last attempt and advises this; weigh it against the contract, which comes first",
        text,
    )
