"""A kernel that is not there yet."""

from __future__ import annotations

from pytest_cgins.regenerate.model import Message
from pytest_cgins.regenerate.prompts import assembly
from pytest_cgins.regenerate.prompts.context import Context

_TASK = (
    "Write the kernel that is described below: all of its cases must pass. Right comes first: a "
    "plain kernel with sound parallelism that takes every recorded call is better than a "
    "clever one. Then make it fast."
)
_AGAIN = (
    "Write the kernel that is described below: all of its cases must pass. The last attempt failed; "
    "its sources are shown, and why. Mend it, or write it anew if its structure is wrong, "
    "and do not try again what was tried."
)


def messages(context: Context) -> tuple[Message, ...]:
    """The prompt for the generator; the same context gives the same text."""
    sections = [assembly.advice(context), *assembly.state(context)]
    return assembly.messages(context, _AGAIN if context.attempts else _TASK, sections)
