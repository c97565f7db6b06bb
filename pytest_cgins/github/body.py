"""The words of a pull request. The report in it was written by others, and may try more than to inform.

GitHub takes care of scripts. What is left are mentions, which send mail, `fixes #1`, which closes issues, images, which
are fetched, comments, which hide words, and links with other people's names on them. Lines of code blocks are left as
they are: there all of this is only text.
"""

from __future__ import annotations

import re

LIMIT = 60_000
"""Most characters of a body; GitHub refuses more than 65,536."""
CUT = "\n\n(cut: the whole report is in the proposal's report.md)\n"
KEPT_TAGS = (
    "details", "summary", "code", "pre", "b", "i", "em", "strong", "table", "thead", "tbody", "tr", "th", "td", "p",
    "br", "hr", "sub", "sup", "ul", "ol", "li", "h1", "h2", "h3", "h4", "h5", "h6",
)  # fmt: skip
"""Tags without attributes that reports have; the sign `<` of all others is escaped."""

_BREAK = "\u200b"
_TAG = re.compile(rf"<(?!/?(?:{'|'.join(KEPT_TAGS)})\s*/?>)(?=[A-Za-z/!?])", re.IGNORECASE)
# As entities they are read before GitHub looks for mentions and references.
_MENTION = re.compile(r"(?:@|&#0*64;|&#x0*40;|&commat;)(?=[a-z0-9&])", re.IGNORECASE)
_ISSUE = re.compile(
    r"(?:(?<!&)#|&#0*35;|&#x0*23;|&num;|\bgh-|/(?:issues|pull|discussions)/)(?=\d|&)", re.IGNORECASE
)


def marker(kernel: str) -> str:
    """The hidden line by which the pull request of a kernel is known again."""
    return f"<!-- cgins:pr:{kernel} -->"


def body(report: str, kernel: str) -> str:
    """Marker and report, made harmless and short enough.

    Args:
        report: markdown that is not trusted.
        kernel: what the marker names; checked before.
    """
    head = f"{marker(kernel)}\n"
    room = LIMIT - len(head)
    text = harmless(report)
    if len(text) > room:
        # An open code block would swallow the last line: the report is cut and made harmless once more.
        text = _closed(text[: room - len(CUT) - 100].rsplit("\n", 1)[0]) + CUT
    return head + text


def harmless(markdown: str) -> str:
    """The same markdown, with mentions, references, images and tags outside of code blocks made plain text."""
    text = "".join(one for one in markdown.replace("\r\n", "\n") if one in "\n\t" or one.isprintable())
    lines = text.split("\n")
    code = _code_lines(text)
    return "\n".join(line if number in code else _plain(line) for number, line in enumerate(lines))


def _plain(line: str) -> str:
    line = _TAG.sub("&lt;", line).replace("<!--", "&lt;!--").replace("![", f"!{_BREAK}[")
    return _ISSUE.sub(_broken, _MENTION.sub(_broken, line))


def _broken(found: re.Match[str]) -> str:
    return found[0] + _BREAK


def _code_lines(text: str) -> set[int]:
    """Numbers of the lines of fenced and indented code blocks, from 0 on."""
    from markdown_it import MarkdownIt

    tokens = MarkdownIt("commonmark").parse(text)
    spans = (one.map for one in tokens if one.type in ("fence", "code_block") and one.map)
    return {number for first, end in spans for number in range(first, end)}


def _closed(text: str) -> str:
    """Close a code block and folded parts that a cut left open."""
    from markdown_it import MarkdownIt

    fences = [one for one in MarkdownIt("commonmark").parse(text) if one.type == "fence" and one.map]
    lines = text.split("\n")
    if fences and fences[-1].map and fences[-1].map[1] >= len(lines):
        last = lines[-1].strip()
        opening = fences[-1].markup
        if fences[-1].map[1] - fences[-1].map[0] == 1 or not (
            last and set(last) == {opening[0]} and len(last) >= len(opening)
        ):
            text = f"{text}\n{opening}"
    open_details = len(re.findall(r"<details>", text)) - len(re.findall(r"</details>", text))
    return text + "\n\n</details>" * max(open_details, 0)
