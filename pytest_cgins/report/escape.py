"""Hostile text as HTML inside markdown.

Kernel names, messages and compiler output come from the repository under test. Markdown has no escape that
holds everywhere (a backslash before a pipe opens a table cell, backticks end a code span), so such text only
goes into HTML elements within an HTML block, where nothing but HTML's own rules apply. An HTML block ends at
a blank line: escaped text never has a line break.
"""

from __future__ import annotations

import html
import re
import unicodedata

from pytest_cgins.core.text import counted

_INVISIBLE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Unicode categories that are shown as `\\uXXXX`: among them are marks that reverse the text after them."""
_FORBIDDEN_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_COMMAND = re.compile(r"(?P<before>^(?:\s|\x1b\[[\d;]*m)*):(?=:)|#(?=#\w*\[)")
"""Where a line is a command to a runner that reads it in a log: `::name::`, even after blanks, or `##[name]` anywhere."""


def code(text: str, *, length: int) -> str:
    """An inline `<code>` element with the text on one line, cut to `length` characters."""
    return f"<code>{_escaped(cut(' '.join(text.split()), length))}</code>"


def inline(text: str) -> str:
    """The text in an element of ours, on one line."""
    return _escaped(" ".join(text.split()))


def block(text: str, *, length: int) -> str:
    """A `<pre>` element with the text's own lines, cut to `length` characters."""
    lines = cut(text.replace("\r\n", "\n"), length).split("\n")
    return f"<pre>{'&#10;'.join(_escaped(line.expandtabs(4)) for line in lines)}</pre>"


def cut(text: str, length: int) -> str:
    """The text, or its beginning and how much was left out."""
    left_out = len(text) - length
    return text if left_out <= 0 else f"{text[:length]} ... ({counted(left_out, 'more character')})"


def visible(text: str) -> str:
    """The text on one line, with characters that control a terminal or hide others spelled out."""
    return "".join(_visible(character) for character in text)


def one_line(text: str, *, length: int) -> str:
    """The text on one line, cut to `length` characters, as `visible` has it."""
    return visible(cut(" ".join(text.split()), length))


def lines(text: str) -> str:
    """The text's own lines for a log or a terminal, each as `visible` has it and none a command to a runner."""
    shown = text.replace("\r\n", "\n").split("\n")
    return "\n".join(no_command(visible(line.expandtabs(4))) for line in shown)


def xml(text: str) -> str:
    """The text without what XML 1.0 forbids: control characters, halves of surrogate pairs and the like."""
    return _FORBIDDEN_IN_XML.sub("", text)


def no_command(line: str) -> str:
    """The line, with the first sign spelled out of what a runner that reads it in a log would obey."""
    return _COMMAND.sub(lambda found: f"{found['before'] or ''}\\u{ord(found[0][-1]):04x}", line)


def _escaped(text: str) -> str:
    # `::name::` and `##[name]` are commands to a runner that reads them in a log.
    return html.escape(visible(text)).replace("::", "&#58;&#58;").replace("##", "&#35;&#35;")


def _visible(character: str) -> str:
    return f"\\u{ord(character):04x}" if unicodedata.category(character) in _INVISIBLE else character
