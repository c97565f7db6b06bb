"""importing.md: its examples are imported, and no kind is left out."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import pytest
from tables import document, rows, sections
from walk import links, run

from pytest_cgins.app import cli
from pytest_cgins.app.commands import import_export as importers
from pytest_cgins.recording.importers import registry

TEXT = document("importing.md")


def kinds(command: str) -> set[str]:
    """KINDs of `cgins import` or `cgins export`."""
    parser = argparse.ArgumentParser()
    importers.add_parsers(parser.add_subparsers())
    (top,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    (nested,) = (
        action for action in top.choices[command]._actions if isinstance(action, argparse._SubParsersAction)
    )
    return set(nested.choices)


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
    assert shown == kinds("import")
    assert {line.split()[2] for line in ran if line.startswith("cgins export ")} == kinds("export")


def test_every_kind_has_its_row_and_section() -> None:
    """The table has each kind, whether it runs code, and a link to the kind's section."""
    table = {row[0]: row[2] for row in rows(TEXT)}
    assert set(table) == {f"[`{kind}`](#{kind})" for kind in kinds("import")}
    for kind in kinds("import"):
        assert kind in sections(TEXT)
        assert table[f"[`{kind}`](#{kind})"] == ("yes" if registry.IMPORTERS[kind].runs_code else "no")


def test_options_that_are_named_exist() -> None:
    """Each `--option` of the text is one of some import or export command."""
    known = set(re.findall(r"`(--[a-z-]+)", document("options.md")))
    named = set(re.findall(r"--[a-z][a-z-]*", TEXT))
    assert len(named) > 10
    assert named <= known | {"--cgins"}


def test_links_lead_somewhere() -> None:
    """Each relative link is to a file, and each link to a section to one that is there."""
    folder = Path(cli.__file__).parents[1] / "docs"
    for link in links(TEXT):
        assert (folder / link).exists(), link
    for file, section in re.findall(r"\]\(([\w./]*)#([\w-]+)\)", TEXT):
        text = (folder / file).read_text() if file else TEXT
        anchors = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in sections(text)}
        assert section in anchors, section
