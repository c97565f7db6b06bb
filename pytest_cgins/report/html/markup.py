"""HTML from nested calls. Whatever is not `Markup` is text and escaped, so that nothing is HTML by oversight."""

from __future__ import annotations

import html
from collections.abc import Iterable

from pytest_cgins.report import escape

TEXT_LENGTH = 20_000
"""Characters of one text that a page shows; the JSON report has it all."""
_VOID = ("input", "path", "rect", "line", "circle")
"""Elements without content. Those of SVG may close themselves, and HTML's parser does not mind it of an input."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """One element.

    Args:
        name: of the element.
        children: markup, and texts that are escaped.
        attributes: `class_` and `for_` for Python's keywords, `aria_label` for `aria-label`. None leaves one out,
            "" makes it a flag.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    if name in _VOID and not children:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{join(children)}</{name}>")


def join(parts: Iterable[str]) -> Markup:
    """Markup and escaped texts, one behind the other."""
    return Markup("".join(part if isinstance(part, Markup) else escaped(part) for part in parts))


def lines(text: str) -> Markup:
    """A `<pre>` with the text's own lines, each with its tabs as blanks."""
    # The parser drops a line break that follows the tag.
    shown = escaped(text.replace("\r\n", "\n").strip("\n"))
    return Markup(f"<pre>{shown}</pre>")


def code(text: str) -> Markup:
    """An inline `<code>` with the text on one line."""
    return element("code", " ".join(text.split()))


def escaped(text: str) -> Markup:
    """A text harmless in an element and in a quoted attribute; characters are spelled out that are hidden.

    Its line breaks are references, and none of the page's source: the style sheet has them shown.
    """
    shown = escape.cut(text, TEXT_LENGTH)
    if shown.isprintable():
        return Markup(html.escape(shown))
    kept = shown.expandtabs(4).replace("\r\n", "\n").split("\n")
    return Markup("&#10;".join(html.escape(escape.visible(line)) for line in kept))


def _attribute(key: str, value: str | float) -> str:
    name = key.rstrip("_").replace("_", "-")
    written = value if isinstance(value, str) else f"{value:.6g}"
    return f' {name}="{escaped(written)}"'
