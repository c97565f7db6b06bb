"""Which cases a user's test gets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cgins.errors import ConfigError
from pytest_cgins.model import Case, Evaluation
from pytest_cgins.session.parametrize import chosen, nearest_config

Make = Callable[..., Evaluation]


@pytest.fixture
def cases(make_evaluation: Make) -> tuple[Case, ...]:
    return tuple(
        make_evaluation(kernel=kernel, implementation=implementation).case
        for kernel, implementation in (("relu", "cpp"), ("relu", "triton"), ("gelu", "cpp"))
    )


def test_selectors_narrow_together(cases: tuple[Case, ...]) -> None:
    """All arguments of the marker must hold; none leaves all cases."""
    assert chosen(cases, {}) == list(cases)
    assert chosen(cases, {"kernel": "relu", "implementation": "cpp"}) == [cases[0]]
    assert chosen(cases, {"op": "torch.nn.functional.gelu"}) == list(cases)


def test_misspelt_selector_is_an_error(cases: tuple[Case, ...]) -> None:
    """A kernel that is not there is no empty set of tests, but an error that names the nearest."""
    with pytest.raises(ConfigError, match=r"no case has the kernel 'relo'\n→ did you mean \"relu\"\?"):
        chosen(cases, {"kernel": "relo"})
    with pytest.raises(ConfigError, match=r"there are cpp, triton"):
        chosen(cases, {"implementation": "zzz"})


def test_nearest_file_wins(tmp_path: Path) -> None:
    """The file beside the test comes before that of the root, and none outside the root is taken."""
    inner = tmp_path / "root" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "cgins.yaml").touch()
    with pytest.raises(ConfigError, match=r"no cgins\.yaml beside"):
        nearest_config(inner / "test_x.py", tmp_path / "root")
    (tmp_path / "root" / "cgins.yaml").touch()
    assert nearest_config(inner / "test_x.py", tmp_path / "root") == tmp_path / "root" / "cgins.yaml"
    (inner / "cgins.yaml").touch()
    assert nearest_config(inner / "test_x.py", tmp_path / "root") == inner / "cgins.yaml"
