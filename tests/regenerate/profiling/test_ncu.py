"""How ncu is called, and what its refusals become."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cgins.regenerate.profiling.ncu import Ncu, refusal


def test_clocks_stay_and_only_the_range_is_profiled(tmp_path: Path) -> None:
    """The command leaves clocks alone, waits for the range, and can leave out counters that are in no section."""
    ncu = Ncu(path="/opt/ncu", version="2025.3")
    words = ncu.around(["python", "-c", "x"], tmp_path / "p", extra=["a.sum", "b.sum"])
    assert words[0] == "/opt/ncu"
    assert words[-3:] == ["python", "-c", "x"]
    for pair in (
        ("--clock-control", "none"),
        ("--profile-from-start", "off"),
        ("--export", str(tmp_path / "p")),
    ):
        assert words[words.index(pair[0]) + 1] == pair[1]
    assert words[words.index("--metrics") + 1] == "a.sum,b.sum"
    assert "--metrics" not in ncu.around(["python"], tmp_path / "p", extra=())


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters",
            ("administrator", "NVreg_RestrictProfilingToAdminUsers=0", "--cap-add=SYS_ADMIN"),
        ),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded\n", ("LibraryNotLoaded",)),
        ("==WARNING== No kernels were profiled.\n", ("launches none",)),
        ("==ERROR== The resource is already in use by another client\n", ("dcgmi profiling --pause",)),
    ],
)
def test_refusals_have_remedies(output: str, words: tuple[str, ...]) -> None:
    """Without permission all three ways to get it are named; other errors are told as they are."""
    for word in words:
        assert word in refusal(output)
    assert refusal("all is well") == ""
