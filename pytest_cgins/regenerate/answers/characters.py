"""Characters that no source may have: what a person who reads a pull request does not see, and what is no text."""

from __future__ import annotations

import re
import unicodedata

from pytest_cgins.core.errors import AnswerError
from pytest_cgins.core.text import counted

MAXIMUM_NBYTES = 256 << 10
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def check(path: str, text: str, before: str) -> None:
    """Refuse a text that is too large, or has control or invisible characters that the source did not have.

    Raises:
        AnswerError: `too-large`, `control-characters` or `invisible-characters`.
    """
    size = len(text.encode("utf-8", errors="surrogatepass"))
    if size > MAXIMUM_NBYTES:
        raise too_large(f"`{path}`", size, MAXIMUM_NBYTES)
    invisible = "an invisible character, which makes code read as what it is not"
    for pattern, code, what in (
        (CONTROL, "control-characters", "a control character"), (INVISIBLE, "invisible-characters", invisible)
    ):  # fmt: skip
        for found in pattern.finditer(text):
            if found[0] not in before:
                line = text.count("\n", 0, found.start()) + 1
                name = unicodedata.name(found[0], "unnamed").lower()
                raise AnswerError(
                    f"`{path}`, line {line}, has {what}: U+{ord(found[0]):04X} ({name})",
                    code=code,
                    remedy="write it as an escape (\\u200b, \\0), or leave it out",
                )


def too_large(what: str, size: int, most: int) -> AnswerError:
    """The refusal of what is too large."""
    return AnswerError(
        f"{what} has {counted(size, 'byte')}; at most {most} are taken",
        code="too-large",
        remedy="leave out tables and repeated code: compute them, or use templates and macros",
    )
