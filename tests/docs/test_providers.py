"""providers.md against what cgins.yaml takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tables import document, rows, sections

from pytest_cgins.config import load
from pytest_cgins.config.provider_presets import PRESETS
from pytest_cgins.core.options import PROVIDERS
from pytest_cgins.regenerate import budget

TEXT = document("providers.md")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_are_read(example: str, tmp_path: Path) -> None:
    """Each example is a whole section, in a file that has nothing else."""
    (tmp_path / "cgins.yaml").write_text(f"version: 1\nkernels: {{}}\n{example}", encoding="utf-8")
    assert load(tmp_path / "cgins.yaml").llm is not None


def test_every_provider_has_an_example() -> None:
    """No provider is left out, neither of the table nor of the examples."""
    assert set(re.findall(r"provider: (\w+)", "".join(EXAMPLES))) == set(PROVIDERS)
    table = {row[0].strip("`"): row[3] for row in rows(TEXT.partition("## Examples")[0])}
    assert set(table) == set(PROVIDERS)
    for provider, variable in (
        (name, preset.api_key_env) for name, preset in PRESETS.items() if preset.api_key_env
    ):
        assert variable in table[provider]


def test_the_figures_of_budgets() -> None:
    """The text has the numbers of the code."""
    text = " ".join(sections(TEXT)["Budgets"].split())
    assert f"less than {budget.LEAST_ANSWER_TOKENS} tokens were left" in text
    assert (budget.FIRST_BYTES_PER_TOKEN, budget.MARGIN) == (2.0, 1.25)
    assert "estimated at two bytes each" in text
    assert "plus 25%" in text
