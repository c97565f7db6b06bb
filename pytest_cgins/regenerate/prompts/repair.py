"""A kernel that is wrong: its source, what the gate found, what was tried."""

from __future__ import annotations

from pytest_cgins.regenerate.model import Message
from pytest_cgins.regenerate.prompts import assembly
from pytest_cgins.regenerate.prompts.context import Context

_TASK = (
    "Repair the kernel below so that all of its cases pass. Find the cause before you change "
    "anything: one line that explains every failing case and every one that holds. "
    "Keep what is right, and keep it about as fast as it is."
)
_AGAIN = (
    "Repair the kernel below so that all of its cases pass. The last attempt failed; its sources are "
    "shown, and why. Explain to yourself why it failed before you write, and do not "
    "try again what was tried."
)


def messages(context: Context) -> tuple[Message, ...]:
    """The prompt for the generator; the same context gives the same text."""
    return assembly.messages(context, _AGAIN if context.attempts else _TASK, assembly.state(context))
