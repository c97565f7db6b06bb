"""`benchmarks/verdicts`: tables that are printed are those of the committed data."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parent / "benchmarks"
RESULTS = FOLDER / "results"


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The script, which finds its neighbours as scripts do."""
    monkeypatch.syspath_prepend(str(FOLDER / "verdicts"))
    spec = importlib.util.spec_from_file_location("verdicts_script", FOLDER / "verdicts" / "verdicts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("subjects", None)


def test_the_table_is_that_of_the_data(verdicts: ModuleType) -> None:
    """The markdown beside the JSON is made from it, figure by figure."""
    document = json.loads((RESULTS / "verdicts-h200.json").read_text())
    assert verdicts.markdown(document) == (RESULTS / "verdicts-h200.md").read_text()
