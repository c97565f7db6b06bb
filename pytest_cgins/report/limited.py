"""Markdown that grows up to a limit of bytes."""

from __future__ import annotations

from collections.abc import Sequence


class LimitedPage:
    """Markdown that grows up to a limit; every section says how much of it was left out."""

    NOTE_NBYTES = 200
    """Room that a section keeps for its closing tags and for saying what was left out."""

    def __init__(self, limit_nbytes: int) -> None:
        self._parts: list[str] = []
        self._left = limit_nbytes

    def add(self, text: str) -> None:
        """Append unconditionally."""
        self._parts.append(text)
        self._left -= len(text.encode())

    def table(self, title: str, columns: Sequence[str], rows: Sequence[str], *, share: float) -> None:
        """A table with as many rows as a share of what is left holds; no rows, no table."""
        if rows:
            cells = "".join(f"<th>{column}</th>" for column in columns)
            self._section(
                f"\n### {title}\n\n<table>\n<tr>{cells}</tr>\n", rows, "</table>\n", share, len(rows)
            )

    def elements(self, blocks: Sequence[str], *, total: int, share: float) -> None:
        """HTML elements one below the other: the first ones of `total`."""
        if blocks:
            self._section("\n", blocks, "", share, total)

    def _section(self, head: str, rows: Sequence[str], tail: str, share: float, total: int) -> None:
        end = self._left - int(self._left * share)
        if self._left - len(head.encode()) - self.NOTE_NBYTES < end:
            return
        self.add(head)
        shown = 0
        for line in rows:
            if self._left - len(line.encode()) - self.NOTE_NBYTES < end:
                break
            self.add(line)
            shown += 1
        left_out = total - shown
        self.add(tail + (f"<p>… {left_out} more: the JSON report has them all.</p>\n" if left_out else ""))

    def text(self) -> str:
        """All of it."""
        return "".join(self._parts)


def row(*cells: str) -> str:
    """A row of a table; cells are HTML."""
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>\n"
