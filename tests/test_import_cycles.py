"""No import cycles between the files of the package: imports inside functions and under TYPE_CHECKING count."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks import house


def test_the_package_has_no_import_cycle() -> None:
    """Each file can be read, tested and moved after those that it imports."""
    assert house.cycles(house.import_graph(house.PACKAGE)) == []


def test_hidden_imports_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cycle is found whose imports are in a function and under TYPE_CHECKING; a file that only imports one of its files is not part of it."""
    package = tmp_path / "cyclic_package"
    package.mkdir()
    for name, source in {
        "__init__": "",
        "first": "def run():\n    from cyclic_package import second\n",
        "second": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from cyclic_package.third import x\n",
        "third": "from . import first\n",
        "above": "import cyclic_package.first\n",
    }.items():
        (package / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    found = house.cycles(house.import_graph("cyclic_package"))
    assert found == [[f"cyclic_package.{name}" for name in ("first", "second", "third")]]
