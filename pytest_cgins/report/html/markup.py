"""Text as HTML. Whatever is not `Markup` is escaped, in templates and in pictures, so that nothing is HTML by oversight."""

from __future__ import annotations

from collections.abc import Iterable

import markupsafe
from markupsafe import Markup

from pytest_cgins.report import escape

TEXT_LENGTH = 20_000
"""Characters of one text that a page shows; the JSON report has it all."""
_VOID = ("path", "rect", "circle")
"""Elements without content; those of SVG may close themselves."""


def element(name: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """One element of a picture; children that are no markup are escaped.

    Of attributes `class_` stands for Python's keyword, `aria_label` for `aria-label`; None leaves one out.
    """
    written = Markup("").join(
        _attribute(key, value) for key, value in attributes.items() if value is not None
    )
    if name in _VOID and not children:
        return Markup("<{}{}/>").format(name, written)
    return Markup("<{}{}>{}</{}>").format(name, written, join(children), name)


def join(parts: Iterable[str]) -> Markup:
    """Markup and escaped texts, one behind the other."""
    return Markup("").join(map(escaped, parts))


def lines(text: str) -> Markup:
    """A `<pre>` with the text's own lines, each with its tabs as blanks."""
    # The parser drops a line break that follows the tag.
    return Markup("<pre>{}</pre>").format(escaped(text.replace("\r\n", "\n").strip("\n")))


def code(text: str) -> Markup:
    """An inline `<code>` with the text on one line."""
    return Markup("<code>{}</code>").format(escaped(" ".join(text.split())))


def escaped(value: object) -> Markup:
    """A value harmless in an element and in a quoted attribute; characters are spelled out that are hidden.

    Its line breaks are references, and none of the page's source: the style sheet has them shown.
    """
    if isinstance(value, Markup):
        return value
    shown = escape.cut(str(value), TEXT_LENGTH)
    if shown.isprintable():
        return markupsafe.escape(shown)
    kept = shown.expandtabs(4).replace("\r\n", "\n").split("\n")
    return Markup("&#10;").join(escape.visible(line) for line in kept)


def _attribute(key: str, value: str | float) -> Markup:
    name = key.rstrip("_").replace("_", "-")
    written = value if isinstance(value, str) else f"{value:.6g}"
    return Markup(' {}="{}"').format(name, escaped(written))
