"""A table that can be sorted and filtered, with a part of details for each of its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_cgins.core.model import Status
from pytest_cgins.report.html.markup import Markup, element, join
from pytest_cgins.report.summary import rank

NOTHING = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell."""

    text: str
    """What is shown."""
    number: float | None = None
    """What it is sorted by; None for its text."""


EMPTY = Cell(text=NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row and its details."""

    name: str
    """Of the case or build; the link to the details."""
    status: Status
    """Its status."""
    outcome: str
    """`pass`, `fail`, `error` or `skip`, under the options of the session."""
    kernel: str
    """Name of the kernel, for the filter."""
    device: str
    """Device or architecture, for the filter."""
    cells: tuple[Cell, ...]
    """Below the columns."""
    headline: str
    """First line of what is wrong; looked through by the filter of texts too."""
    details: Markup
    """Shown on request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Heading of a column."""

    name: str
    """What it says."""
    optional: bool = False
    """Whether it is left out where all of its cells are empty."""
    numbers: bool = True
    """Whether its cells are flush right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All rows of a kind."""

    id: str
    """Beginning of the ids of its elements: `cases`."""
    title: str
    """Heading."""
    device: str
    """What `Row.device` is called: `device` or `architecture`."""
    columns: Sequence[Column]
    """Those of `Row.cells`."""
    rows: Sequence[Row]
    """Worst first."""

    def table(self) -> Markup:
        """The section with filters and table."""
        total = f"{len(self.rows):,}"
        return element(
            "section",
            element("h2", self.title, id=self.id, tabindex="-1"),
            self._filters(),
            element("p", f"{total} of {total} shown", role="status", class_="shown"),
            self._rows(),
            element("button", "Show all", type="button", class_="more", hidden=""),
            data_list=self.id,
            aria_labelledby=self.id,
        )

    def details(self) -> Markup:
        """The section with a part for each row."""
        id_ = f"{self.id}-details"
        heading = element("h2", f"{self.title}: details", id=id_)
        hint = element("p", "Those whose names are followed in the table are shown here.", hidden="")
        return element("section", heading, hint, *self._details(), class_="details", aria_labelledby=id_)

    def _filters(self) -> Markup:
        """Of no use without the script, which shows them."""
        statuses = Counter(row.status for row in self.rows)
        ordered = sorted(statuses.items(), key=lambda pair: rank(pair[0]))
        outcomes = Counter(row.outcome for row in self.rows)
        bad = outcomes["fail"] + outcomes["error"]
        options = [("bad", f"failed or error ({bad:,})")] if bad else []
        options += [(status.value, f"{status.value} ({count:,})") for status, count in ordered]
        field = element("input", type="search", id=f"{self.id}-text", name="text", autocomplete="off")
        text = element("label", "Text ", field, for_=f"{self.id}-text")
        return element(
            "form",
            text,
            self._choice("status", "Status", options),
            self._choice("device", self.device.capitalize(), _named([row.device for row in self.rows])),
            self._choice("kernel", "Kernel", _named([row.kernel for row in self.rows])),
            element("button", "Reset", type="reset"),
            class_="filters",
            role="search",
            aria_label=f"Filter {self.title.lower()}",
            hidden="",
        )

    def _choice(self, name: str, label: str, options: Sequence[tuple[str, str]]) -> Markup:
        choices = [element("option", "all", value="")]
        choices += [element("option", text, value=value) for value, text in options]
        id_ = f"{self.id}-{name}"
        return element("label", f"{label} ", element("select", *choices, id=id_, name=name), for_=id_)

    def _rows(self) -> Markup:
        kept = [
            index
            for index, column in enumerate(self.columns)
            if not column.optional or any(row.cells[index].text != NOTHING for row in self.rows)
        ]
        headings = [element("th", "case" if self.id == "cases" else "build", scope="col")]
        headings.append(element("th", "status", scope="col"))
        headings += [
            element(
                "th", self.columns[i].name, scope="col", class_="number" if self.columns[i].numbers else None
            )
            for i in kept
        ]
        table = element(
            "table",
            element("caption", f"{self.title}, worst first. A name leads to its details."),
            element("thead", element("tr", *headings)),
            element("tbody", *(self._row(number, row, kept) for number, row in enumerate(self.rows))),
        )
        # Whoever has no mouse scrolls what has the focus.
        label = f"Table of {self.title.lower()}"
        return element("div", table, class_="scroll", tabindex="0", role="region", aria_label=label)

    def _row(self, number: int, row: Row, kept: Sequence[int]) -> Markup:
        name = element(
            "th", element("a", row.name, href=f"#{self._place(number)}"), scope="row", data_text=row.headline
        )
        status = element("td", badge(row.status, row.outcome), data_n=rank(row.status))
        cells = [self._cell(row.cells[index], self.columns[index]) for index in kept]
        return element(
            "tr",
            name,
            status,
            *cells,
            data_status=row.status.value,
            data_outcome=row.outcome,
            data_device=row.device,
            data_kernel=row.kernel,
        )

    def _cell(self, cell: Cell, column: Column) -> Markup:
        number = None if cell.number is None else repr(cell.number).replace("inf", "Infinity")
        return element("td", cell.text, class_="number" if column.numbers else None, data_n=number)

    def _details(self) -> Iterator[Markup]:
        """A browser with the script reads what is in `noscript` as one text: it costs nothing until it is asked for."""
        for number, row in enumerate(self.rows):
            title = element(
                "summary", badge(row.status, row.outcome), " ", element("span", row.name, class_="name")
            )
            # A place inside: that is what browsers open the details for, without the script too.
            place = element("span", id=self._place(number), class_="place")
            back = element(
                "p", element("a", f"Back to the table of {self.title.lower()}", href=f"#{self.id}")
            )
            shown = element("details", title, place, row.details, back)
            yield element("noscript", shown, data_place=self._place(number))

    def _place(self, number: int) -> str:
        return f"{self.id}-{number + 1}"


def badge(status: Status, outcome: str) -> Markup:
    """A status in the colour of what became of it."""
    open_ones = (Status.WEAK, Status.INCONCLUSIVE)
    kind = "warn" if outcome == "pass" and status in open_ones else outcome
    return element("span", status.value, class_=f"badge {kind}")


def _named(values: Sequence[str]) -> list[tuple[str, str]]:
    return [(value, f"{value} ({count:,})") for value, count in sorted(Counter(values).items())]


def plain_table(
    caption: str, headings: Sequence[str], rows: Sequence[Sequence[str]], *, caption_hidden: bool = False
) -> Markup:
    """A table as it is, whose first cells head their rows; empty without rows."""
    if not rows:
        return Markup()
    body = [
        element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:]))
        for row in rows
    ]
    table = element(
        "table",
        element("caption", caption, class_="unseen" if caption_hidden else None),
        element("thead", element("tr", *(element("th", heading, scope="col") for heading in headings))),
        element("tbody", join(body)),
    )
    # No region: there is one a case, and regions are what a screen reader's user jumps to.
    return element("div", table, class_="scroll", tabindex="0", role="group", aria_label=caption)
