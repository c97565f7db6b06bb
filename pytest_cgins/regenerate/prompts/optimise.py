"""A kernel that is right and too slow: one pass with the device and the times in view."""

from __future__ import annotations

from pytest_cgins.regenerate.model import Message
from pytest_cgins.regenerate.prompts import assembly
from pytest_cgins.regenerate.prompts.context import Context

TASK = (
    "The kernel below is right. Make it faster on the hardware below, on every case that is timed, "
    "without slowing any down, and keep it right. Look at the times first: a case far below the "
    "copy's bandwidth with few bytes is bound by the launch or by too little parallelism, one near "
    "it by memory; say which before you choose. Make the few changes that matter most, and "
    "leave the rest."
)
_AGAIN = (
    "The kernel before all attempts is right and too slow on the hardware below. The last attempt "
    "did not pass; its sources are shown, and why. Mend it, or go back to the source before all "
    "attempts and take another way. It must be right, and faster than before."
)


def messages(context: Context) -> tuple[Message, ...]:
    """The prompt for the generator; the same context gives the same text."""
    sections = [assembly.advice(context), *assembly.state(context), assembly.times(context)]
    return assembly.messages(context, _AGAIN if context.attempts else TASK, sections)
