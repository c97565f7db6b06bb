"""configuration.md against what the loader knows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from tables import document

from pytest_cgins.config import document as documents
from pytest_cgins.config import load
from pytest_cgins.core.verdict import PROBES

TEXT = document("configuration.md")
# What the loader calls a part of the file → how the document writes its keys.
PLACES = {
    r"the file": "",
    r"gate of the file": "gate.",
    r'kernel "[^"]*"': "kernels.NAME.",
    r'implementation .* of kernel "[^"]*"': "kernels.NAME.implementations[].",
    r'tolerance of kernel "[^"]*"': "kernels.NAME.tolerance.",
    r'gate of kernel "[^"]*"': "kernels.NAME.gate.",
    r'work of kernel "[^"]*"': "kernels.NAME.work.",
    r'probe "[^"]*" of kernel "[^"]*"': "kernels.NAME.probes.PROBE.",
    r'repeatable of kernel "[^"]*"': "kernels.NAME.repeatable.",
    r'ranks of kernel "[^"]*"': "kernels.NAME.ranks.",
    r'precision of kernel "[^"]*"': "kernels.NAME.precision.",
    r'semantics of kernel "[^"]*"': "kernels.NAME.semantics.",
    r"llm": "llm.",
    r"models of llm": "llm.models.",
    r"temperature of llm": "llm.temperature.",
    r"budget of llm": "llm.budget.",
    r'price of model "[^"]*"': "llm.prices.NAME.",
    r"pull_request": "pull_request.",
}


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Every key that the loader accepts, met by loading the document's own example."""
    found: dict[str, set[str]] = {}
    real = documents.Section.refuse_unknown

    def refuse_unknown(self: documents.Section, keys: Iterable[str]) -> None:
        keys = tuple(keys)
        (place,) = [place for pattern, place in PLACES.items() if re.fullmatch(pattern, self.title)] or [
            f"({self.title})."
        ]
        found.setdefault(place, set()).update(keys)
        real(self, keys)

    monkeypatch.setattr(documents.Section, "refuse_unknown", refuse_unknown)
    example = re.search(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    assert example is not None
    for name in re.findall(r"(?:source: |sources: \[)([\w./]+)", example[1]):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    for name in re.findall(r"traces/\w+", example[1]):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "cgins.yaml").write_text(example[1])
    load(tmp_path / "cgins.yaml")
    # In the short form an implementation's keys stand under the kernel; the document lists them once.
    found["kernels.NAME."] -= found["kernels.NAME.implementations[]."]
    assert found.pop('(probes of kernel "layer_norm").') == set(PROBES)
    return {place + key for place, keys in found.items() for key in keys}


ITEM = re.compile(r"(?m)^- `([^`]+)` \((.+?); (.+?)\): (.+)$")


def documented() -> dict[str, list[str]]:
    """Key → type, default and meaning of each item."""
    items = ITEM.findall(TEXT.partition("## Environment")[0])
    return {key: cells for keys, *cells in items for key in expanded(keys)}


def expanded(keys: str) -> list[str]:
    """The keys of an item: of `a.{b,c}` these are `a.b` and `a.c`."""
    head, braces, rest = keys.partition("{")
    return [head + last for last in rest.rstrip("}").split(",")] if braces else [keys]


def test_keys_are_those_of_the_loader(known: set[str]) -> None:
    """Each key that the loader knows has an item, and each item is a key that it knows."""
    assert set(documented()) == known


def test_items_are_complete() -> None:
    """Each item of a key has a type, a default and a meaning."""
    text = TEXT.partition("## Environment")[0]
    assert len(ITEM.findall(text)) == len(re.findall(r"(?m)^- `\w[^`]*` \(", text))


def test_environment_variables_are_read() -> None:
    """Each variable that the document names is read somewhere in the package."""
    package = Path(documents.__file__).parents[1]
    sources = "".join(path.read_text() for path in package.rglob("*.py"))
    names = re.findall(r"(?m)^- `([A-Z_]+)`: .", TEXT.partition("## Environment")[2])
    assert names
    for name in names:
        assert f'"{name}"' in sources, name
    ours = set(re.findall(r'"(CGINS_[A-Z_]+)"', sources))
    assert ours <= set(names)
