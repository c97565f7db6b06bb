"""Wording that many messages share, and that all of the package keeps to it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from pytest_cgins.core.text import counted, nearest, nearest_path

ROOT = Path(__file__).parents[2]
STANDALONE = {
    "pytest_cgins/run/sandbox/init.py": "runs without the package's imports, before a fence closes",
    "pytest_cgins/building/torch_library/support.py": "is copied into the packages that are exported",
}
NO_NUMBERS = {
    "factors.pop()": "a factor with digits behind the point",
    "ratio(check.share)": "the same",
    "ratio(comparison.ratio)": "the same",
    "ratio(sums.ratio)": "the same",
    "ratio(reported)": "the same",
    "ratio(median(ratios))": "the same",
    "_or_unknown(it.cores)": "a number or the word unknown, of a machine, not of one thing",
    "_or_unknown(it.registers_per_sm)": "the same",
    "_or_unknown(it.threads_per_block)": "the same",
    "_or_unknown(it.threads_per_sm)": "the same",
    "place": "a file",
    "builder.semantics.names.get(index, index)": "an argument",
    "whose": "a rank's",
    "wanted": "a path",
    "kind": "wrong or slow",
}
ONLY_SEVERAL = {
    "cases": "one case has a sentence of its own",
    "times": "once is left out",
    "group.count": "ranks of a group",
    "max(len(places), 2)": "at least 2",
}
BETWEEN = r"(?!(?:of|or|and|are|that|on|in|to|the|with|against|not|would|had) )"
PLURAL = re.compile(rf" (?:{BETWEEN}[a-z-]+ ){{0,2}}?([a-z]+s)\b")
VERBS = {"besides", "has", "is", "pass", "passes", "uses", "waits", "was"}
UNSURE = {"draws", "inputs", "names"}
"""Verbs too, or `fresh inputs`: plurals only where what is before them is a number for sure."""


@cache
def sources() -> tuple[tuple[str, ast.Module], ...]:
    files = [file for folder in ("pytest_cgins", "action") for file in sorted((ROOT / folder).rglob("*.py"))]
    return tuple((str(file.relative_to(ROOT)), ast.parse(file.read_text(encoding="utf-8"))) for file in files)


@cache
def counted_nouns() -> frozenset[str]:
    """Plurals of all that the package counts through `counted`."""
    plurals = []
    for _, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "counted":
                forms = [one.value for one in node.args[1:] if isinstance(one, ast.Constant)]
                plurals += [f"{forms[0]}s" if len(forms) == 1 else form for form in forms[-1:]]
    return frozenset(word for plural in plurals for word in plural.split() if word.endswith("s")) - VERBS


def uncounted(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Where an f-string puts a number before a plural by itself: line, expression, plural."""
    for text in (node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)):
        for value, after in zip(text.values, text.values[1:], strict=False):
            if isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant):
                plural = PLURAL.match(after.value)
                grouped = value.format_spec is not None and ast.unparse(value.format_spec) == "f','"
                quoted = value.conversion == ord("r")
                if plural is None or plural[1] in VERBS or quoted or (value.format_spec and not grouped):
                    continue
                number = ast.unparse(value.value)
                if re.fullmatch(r"[A-Z_.]+", number):  # a limit
                    continue
                sure = grouped or re.match(r"(len|sum)\(", number) is not None
                if sure or plural[1] in counted_nouns() - UNSURE:
                    yield value.lineno, number, plural[1]


@pytest.mark.exam
def test_every_counted_noun_goes_through_one_helper() -> None:
    """`1 cases` is read as carelessness in all else; a number that is never 1 is named above, with its reason."""
    assert len(counted_nouns()) > 50
    wrong = [
        f"{file}:{line}: {{{number}}} {plural}"
        for file, tree in sources()
        if file not in STANDALONE
        for line, number, plural in uncounted(tree)
        if number not in NO_NUMBERS.keys() | ONLY_SEVERAL.keys()
    ]
    assert wrong == []


@pytest.mark.exam
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("f'probe not run, {count} cases: {why}'", ["cases"]),
        ("f'{len(rest)} more gizmos'", ["gizmos"]),
        ("f'{total:,} gizmos'", ["gizmos"]),
        ("f'at most {MOST_FILES} files'", []),
        ("f'{ratio:.3g} times'", []),
        ("f'{made.name} has it'", []),
        ("f'announces {count!r} buffers'", []),
    ],
)
def test_what_the_search_finds(line: str, found: list[str]) -> None:
    """The test above would see a new one."""
    assert [plural for _, _, plural in uncounted(ast.parse(line))] == found


def test_no_noun_is_made_plural_in_place() -> None:
    """An s that is added by hand is a second helper."""
    by_hand = re.compile(r"""(?:\{'s' |else 's'|'s' if |'s'\[|f"\{\w+\} \w+s" if [^\n]* else "1 )""")
    found = [
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for file in sorted((ROOT / "pytest_cgins").rglob("*.py"))
        for line in file.read_text(encoding="utf-8").splitlines()
        if by_hand.search(line) and file.name != "text.py"
    ]
    assert found == []


@pytest.mark.parametrize(
    ("number", "forms", "text"),
    [
        (0, ("case",), "0 cases"),
        (1, ("case",), "1 case"),
        (2, ("entry", "entries"), "2 entries"),
        (1, ("case was", "cases were"), "1 case was"),
        (1024, ("byte",), "1024 bytes"),
    ],
)
def test_counted(number: int, forms: tuple[str, ...], text: str) -> None:
    """One is one, and nought and many are several."""
    assert counted(number, *forms) == text


def test_counted_groups_thousands() -> None:
    """As long numbers are read."""
    assert counted(1_048_576, "byte", grouped=True) == "1,048,576 bytes"


def test_nearest_names_the_most_similar_word() -> None:
    """A typing error leads to the known word."""
    assert nearest("sorce", ["source", "target"]) == 'did you mean "source"?'


def test_nearest_says_nothing_when_nothing_is_similar() -> None:
    """No guess is better than a wild one."""
    assert nearest("zebra", ["source", "target"]) == ""


def test_a_path_is_guessed_as_it_is_written(tmp_path: Path) -> None:
    """What is similar in its folder, behind what was written before the name; nothing where there is no folder."""
    (tmp_path / "relu.cpp").touch()
    assert nearest_path(tmp_path / "rleu.cpp", "kernels/rleu.cpp") == 'did you mean "kernels/relu.cpp"?'
    assert nearest_path(tmp_path / "gone" / "rleu.cpp", "gone/rleu.cpp") == ""
