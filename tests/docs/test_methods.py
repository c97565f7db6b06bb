"""evidence.md on methods: its commands print what it quotes, its tables name what there is."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

import pytest
from tables import document, rows, sections
from walk import run

from pytest_cgins.regenerate.methods import axis_budget
from pytest_cgins.regenerate.methods.classes import MethodClass
from pytest_cgins.regenerate.methods.definition import FIGURES

TEXT = document("evidence.md")


def test_every_step_works_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The commands are run, and the user's file is right."""
    monkeypatch.chdir(tmp_path)
    assert [line.split()[2] for line in run(TEXT, capfd)] == ["ls", "show", "offer", "check"]


def test_the_tables_are_complete() -> None:
    """Every class is listed, and where the figures are."""
    named = {row[0].strip("`") for row in rows(sections(TEXT)["A round"])}
    assert named == set(MethodClass.__args__)
    (linked,) = re.findall(r"\[figures\]\((\S+)\)", sections(TEXT)["Methods of your own"])
    assert json.loads((files("pytest_cgins") / "docs" / linked).read_text(encoding="utf-8")) == FIGURES


def test_the_numbers_are_those_of_the_code() -> None:
    """Budget and stop are told as they are computed."""
    assert (axis_budget.METHODS_A_ROUND, axis_budget.MOST_AN_AXIS) == (3, 2)
    flat = re.sub(r"\s+", " ", TEXT)
    assert f"none below a gap of {axis_budget.LEAST_GAP:.2f}" in flat
    assert f"An axis without data counts as {axis_budget.ASSUMED_GAP}" in flat
    assert f"is {1 - axis_budget.NEAR:.0%} and more" in flat
    assert f"above {axis_budget.BELIEVED:.0%} is ignored" in flat
