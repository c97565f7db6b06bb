"""With the plugin installed and --cgins absent."""

from __future__ import annotations

import pytest

HEAVY = ("torch", "numpy", "yaml", "pydantic", "openai", "rich", "pytest_cgins.app.session")


@pytest.mark.exam
def test_nothing_of_ours_is_imported(pytester: pytest.Pytester) -> None:
    """Only the package and the plugin module are loaded, and nothing heavy."""
    pytester.makepyfile(
        f"""
        import sys

        def test_modules():
            heavy = [name for name in {HEAVY!r} if name in sys.modules]
            ours = sorted(name for name in sys.modules if name.startswith("pytest_cgins"))
            core = [f"pytest_cgins.core.{{name}}" for name in ("device", "errors", "options")]
            assert (heavy, ours) == ([], ["pytest_cgins", "pytest_cgins.core", *core, "pytest_cgins.plugin"])
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


@pytest.mark.exam
def test_config_file_is_no_test(pytester: pytest.Pytester) -> None:
    """A cgins.yaml, even a wrong one, is not looked at; the header says what would."""
    pytester.makefile(".yaml", cgins="this is: [no config")
    pytester.makepyfile("def test_other(): pass")
    run = pytester.runpytest_subprocess()
    run.assert_outcomes(passed=1)
    assert run.outlines.count("cgins.yaml found; `pytest --cgins` gates its kernels") == 1
    assert "pytest --cgins" not in pytester.runpytest_subprocess("-q").stdout.str()


@pytest.mark.exam
def test_a_project_without_kernels_is_told_nothing(pytester: pytest.Pytester) -> None:
    """A cgins.yaml of a folder below is none of the root's."""
    pytester.mkdir("below").joinpath("cgins.yaml").write_text("version: 1\n")
    pytester.makepyfile("def test_other(): pass")
    assert "pytest --cgins" not in pytester.runpytest_subprocess().stdout.str()


@pytest.mark.exam
def test_tests_of_kernels_skip_with_the_reason(pytester: pytest.Pytester) -> None:
    """The marker, each fixture, and a fixture asked for at run time skip; other tests run."""
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.cgins(kernel="relu")
        def test_marked():
            raise AssertionError

        @pytest.mark.parametrize("name", ["cgins_case", "cgins_kernel", "cgins_benchmark", "cgins_record"])
        def test_asked_for(request, name):
            request.getfixturevalue(name)

        def test_case(cgins_case): raise AssertionError
        def test_kernel(cgins_kernel): raise AssertionError
        def test_benchmark(cgins_benchmark): raise AssertionError
        def test_record(cgins_record): raise AssertionError
        def test_other(): pass
        """
    )
    result = pytester.runpytest_subprocess("-rs", "--strict-markers")
    result.assert_outcomes(passed=1, skipped=9)
    reasons = [line.rpartition(": ")[2] for line in result.outlines if line.startswith("SKIPPED")]
    assert set(reasons) == {"needs --cgins"}


@pytest.mark.exam
def test_options_and_marker_are_documented(pytester: pytest.Pytester) -> None:
    """--help lists the options, --markers the marker, --fixtures the fixtures."""
    text = pytester.runpytest_subprocess("--help").stdout.str()
    for option in ("", "-json", "-seed", "-strict", "-device", "-no-timing", "-log-level", "-timeout"):
        assert f"--cgins{option}" in text
    assert "@pytest.mark.cgins(kernel=None" in pytester.runpytest_subprocess("--markers").stdout.str()
    fixtures = pytester.runpytest_subprocess("--fixtures").stdout.str()
    for name in ("cgins_case", "cgins_kernel", "cgins_benchmark", "cgins_record"):
        assert f"{name} -- " in fixtures
