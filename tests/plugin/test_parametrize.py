"""Which cases a user's test gets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_cgins.app.session.parametrize import check_selection, chosen, nearest_config
from pytest_cgins.config import Implementation, KernelEntry
from pytest_cgins.core.case import Case
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.session_report import Evaluation

if TYPE_CHECKING:
    from conftest import Run

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


def kernel(name: str, **devices: str) -> KernelEntry:
    implementations = tuple(
        Implementation(name=implementation, device=device, contract="launcher", sources=())
        for implementation, device in devices.items()
    )
    return KernelEntry(name=name, op=f"torch.nn.functional.{name}", implementations=implementations)


def test_misspelt_selector_is_an_error() -> None:
    """A kernel that is not there is no empty set of tests, but an error that names the nearest."""
    kernels = [kernel("relu", cpp="cpu", triton="cuda"), kernel("gelu", cpp="cpu")]
    with pytest.raises(ConfigError, match=r"no case has the kernel 'relo'\n→ did you mean \"relu\"\?"):
        check_selection(kernels, {"kernel": "relo"})
    with pytest.raises(ConfigError, match=r"there are cpp, triton"):
        check_selection(kernels, {"implementation": "zzz"})


def test_selectors_that_never_meet_are_an_error() -> None:
    """An implementation of another kernel is as wrong as one that is nowhere."""
    kernels = [kernel("relu", cpp="cpu", triton="cuda"), kernel("gelu", cpp="cpu")]
    check_selection(kernels, {"kernel": "relu", "implementation": "triton"})
    with pytest.raises(
        ConfigError, match=r"no case of kernel 'gelu' has the implementation 'triton'\n→ there are cpp"
    ):
        check_selection(kernels, {"implementation": "triton", "kernel": "gelu"})


def test_selection_of_an_excluded_device_is_skipped(project: Path, run: Callable[..., Run]) -> None:
    """A test of cuda kernels does not break a session with --cgins-device=cpu: it skips and says why."""
    (project / "test_user.py").write_text(
        "import pytest\n"
        "@pytest.mark.cgins(kernel='relu', implementation='cuda')\n"
        "def test_x(cgins_case): raise AssertionError\n"
        "def test_y(): pass\n"
    )
    found = run(project, "--cgins", "--cgins-device=cpu", "test_user.py", "-rs")
    assert (found.code, found.counts) == (0, {"passed": 1, "skipped": 1})
    assert "no case for --cgins-device=cpu, kernel 'relu', implementation 'cuda'" in found.out


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
