"""importing.md: its examples are imported, and no kind is left out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tables import document, rows, sections
from walk import run

from pytest_cgins.recording.importers import registry

TEXT = document("importing.md")


def test_every_example_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each format's example is imported as the document says, with the report that it quotes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    try:
        ran = run(TEXT, capfd)
    finally:
        for name in set(sys.modules) - before:
            if name.partition(".")[0] == "references":
                del sys.modules[name]
    shown = {line.split()[2] for line in ran if line.startswith("cgins import ")}
    assert shown == set(registry.IMPORTERS)
    assert {line.split()[2] for line in ran if line.startswith("cgins export ")} == set(registry.EXPORTERS)


def test_every_kind_has_its_row_and_section() -> None:
    """The table has each kind, whether it runs code, and a link to the kind's section."""
    table = {row[0]: row[2] for row in rows(TEXT)}
    assert set(table) == {f"[`{kind}`](#{kind})" for kind in registry.IMPORTERS}
    for kind, importer in registry.IMPORTERS.items():
        assert kind in sections(TEXT)
        assert table[f"[`{kind}`](#{kind})"] == ("yes" if importer.runs_code else "no")
