"""Which probes a level has."""

from __future__ import annotations

from pytest_cgins.core.options import PROBE_LEVELS
from pytest_cgins.core.verdict import PROBES
from pytest_cgins.verify.probes.registry import ALWAYS, PROBE_SPECS, RANKED, SANITIZED, TIMED, switched_on


def test_every_probe_has_a_spec() -> None:
    """The names that cgins.yaml knows, and those of the registry, are the same."""
    assert set(PROBE_SPECS) == set(PROBES)
    assert set(PROBE_SPECS) >= TIMED


def test_levels_are_nested() -> None:
    """`off` is part of `fast`, which is part of `full`, which is all."""
    full, fast, off = (set(switched_on(level)) for level in PROBE_LEVELS)
    assert off < fast < full == set(PROBES) - SANITIZED - {"ranks"}
    assert off == set(ALWAYS)
    assert fast == {name for name in full if PROBE_SPECS[name].fast}


def test_kernels_of_several_ranks_have_their_own() -> None:
    """At each level those that all ranks run alike, and no sanitizer."""
    assert set(switched_on("full", sanitize=("memcheck",), ranked=True)) == RANKED
    assert set(switched_on("off", ranked=True)) == RANKED & set(ALWAYS)
    assert "ranks" not in switched_on("full", ["ranks"], ranked=True)


def test_sanitizers_are_on_only_when_asked_for() -> None:
    """`--cgins-sanitize` adds its tools to any level; an exception takes one away again."""
    for level in PROBE_LEVELS:
        plain = switched_on(level)
        assert switched_on(level, sanitize=("memcheck", "racecheck")) == (*plain, "memcheck", "racecheck")
        assert switched_on(level, ["racecheck"], sanitize=("memcheck", "racecheck")) == (*plain, "memcheck")


def test_an_exception_holds_in_every_level() -> None:
    """What a kernel is excused from is not looked for."""
    for level in PROBE_LEVELS:
        assert "poison" not in switched_on(level, ["poison"])
