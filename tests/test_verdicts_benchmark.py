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
README = Path(__file__).parents[1] / "README.md"


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


def test_the_readme_quotes_the_data() -> None:
    """Runs, alarms and milliseconds of README are those of the JSON."""
    document = json.loads((RESULTS / "verdicts-h200.json").read_text())
    text = README.read_text()
    same, five, three = (document["groups"][name] for name in ("same", "planted_5", "planted_3_strict"))
    assert (
        f"| {same['runs']} | {same['slower_and_confirmed']} | {same['undecided']} | {same['gpu_ms_median']:.1f} ms |"
        in text
    )
    for one in (five, three):
        found = f"{one['slower_and_confirmed']:g}, each confirmed in another process | {one['undecided']:g}"
        assert f"| {one['runs']} | {found} | {one['gpu_ms_median']:.1f} ms |" in text
    rivals = {one["rule"]: one for one in document["rivals"]}
    for rule, words in {
        "do_bench": "gave {} false alarms in {} and missed {} of {}",
        "pytest_benchmark": "{} of {} and {} of {}",
    }.items():
        assert words.format(*rivals[rule]["false_alarms"], *rivals[rule]["missed"]) in text
    assert "{} of {} and none".format(*rivals["mann_whitney"]["false_alarms"]) in text
    assert rivals["mann_whitney"]["missed"][0] == 0
