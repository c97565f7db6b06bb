"""What a green run must not hide: fewer cases than at the base revision, files that changed meanwhile, nothing gated."""

from __future__ import annotations

import importlib.util
import marshal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from pytest_cgins.app.session.coverage import Coverage, is_given
from pytest_cgins.building.revision.merge_base import TARGETS
from tests.repository import commit, git

if TYPE_CHECKING:
    from conftest import Run

FAST = ("--cgins", "--cgins-no-timing", "--cgins-json=report.json")
CI = {"CI": "true", **dict.fromkeys(TARGETS, "")}
PULL_REQUEST = CI | {"CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main"}
ONE = """\
version: 1
traces: [traces/tiny]
kernels:
  scaled: {op: tiny_ops.scaled, device: cpu, target: 'tiny_ops:scaled_kernel', sources: [tiny_ops.py]}
"""
CUDA = "  relu: {op: torch.nn.functional.relu, source: kernels/relu.cu}\n"


@pytest.fixture
def repository(project: Path) -> Path:
    """The project with one kernel more at the base revision: `relu`, on a GPU."""
    (project / "cgins.yaml").write_text(ONE + CUDA)
    commit(project)
    (project / "cgins.yaml").write_text(ONE)
    return project


@pytest.mark.exam
def test_fewer_cases_fail_in_ci(repository: Path, run: Callable[..., Run]) -> None:
    """A removed kernel is named in terminal, JSON and summary, and is exit 1; what -k leaves out is not missing."""
    found = run(repository, *FAST, env=PULL_REQUEST)
    assert (found.code, found.counts) == (1, {"passed": 1}), found.out
    document = found.document()
    assert document["exit_status"] == 1
    names = [name.rpartition("-")[0] for name in document["missing"]]
    assert names == ["cgins.yaml::relu/cuda/tiny/f32-2x3", "cgins.yaml::relu/cuda/tiny/f32-4x8"]
    assert document["base_revision"].endswith(" (merge-base with main)")
    said = f"MISSING 2 cases of {document['base_revision']} are no longer there: restore what is missing, or accept it once"
    assert f"{said} with --cgins-allow-fewer" in found.out
    assert f"  {document['missing'][0]}" in found.lines
    (repository / "cgins.yaml").write_text(ONE + CUDA)
    (repository / "test_own.py").write_text("def test_own():\n    pass\n")
    found = run(repository, *FAST, "-k", "own")
    assert (found.code, found.document()["missing"]) == (0, []), found.out


def test_fewer_cases_are_told_elsewhere(repository: Path, run: Callable[..., Run]) -> None:
    """Outside of CI, and in CI with --cgins-allow-fewer, the same is said and the run passes; under xdist too."""
    (repository / "test_own.py").write_text("def test_own():\n    pass\n")
    found = run(repository, *FAST, "-k", "own", env=dict.fromkeys(CI, ""))
    assert (found.code, len(found.document()["missing"])) == (0, 2), found.out
    assert "not enforced in this run; it fails in a pull request in CI, or with --cgins-baseline" in found.out
    found = run(repository, *FAST, "-p", "xdist", "-n", "1", "--cgins-allow-fewer", env=PULL_REQUEST)
    assert (found.code, len(found.document()["missing"])) == (0, 2), found.out
    assert "are no longer there: allowed by --cgins-allow-fewer" in found.out


def test_a_weaker_gate_fails_in_ci_until_a_person_accepts_it(
    repository: Path, run: Callable[..., Run]
) -> None:
    """The loosened setting comes first and is exit 1; with --cgins-allow-weaker it is listed all the same."""
    (repository / "cgins.yaml").write_text(f"{ONE}{CUDA}gate: {{tolerate: 4%}}\n")
    found = run(repository, *FAST, "-k", "scaled", env=PULL_REQUEST)
    assert (found.code, len(found.document()["weaker"])) == (1, 2), found.out
    assert "scaled: gate.tolerate 0.02 → 0.04" in found.out
    found = run(repository, *FAST, "-k", "scaled", "--cgins-allow-weaker", env=PULL_REQUEST)
    assert (found.code, len(found.document()["weaker"])) == (0, 2), found.out
    assert "allowed by --cgins-allow-weaker" in found.out


@pytest.mark.exam
def test_fewer_cases_of_a_push_are_told(repository: Path, run: Callable[..., Run]) -> None:
    """Outside of a pull request they do not fail CI, unless a baseline is asked for, be it by addopts."""
    (repository / "test_own.py").write_text(
        "@__import__('pytest').mark.cgins(kernel='scaled')\ndef test_own(cgins_kernel):\n    pass\n"
    )
    found = run(repository, *FAST, "test_own.py", "cgins.yaml", "-k", "own", env=CI)
    assert (found.code, len(found.document()["missing"]), found.document()["told_only"]) == (0, 2, True), (
        found.out
    )
    found = run(
        repository, *FAST, "test_own.py", "cgins.yaml", "-k", "own", "--cgins-baseline=merge-base", env=CI
    )
    assert (found.code, found.document()["told_only"]) == (1, False), found.out
    addopts = {"PYTEST_ADDOPTS": "--cgins-baseline HEAD"}
    found = run(repository, *FAST, "test_own.py", "cgins.yaml", "-k", "own", env=CI | addopts)
    assert (found.code, len(found.document()["missing"])) == (1, 2), found.out


@pytest.mark.exam
def test_a_deleted_file_that_was_ignored_is_not_missing(repository: Path, run: Callable[..., Run]) -> None:
    """What pytest's own rules had left out while it was there is not missed when it goes."""
    old = repository / "build" / "cgins.yaml"
    old.parent.mkdir()
    old.write_text(ONE.replace("traces/tiny", "../traces/tiny").replace("[tiny_ops.py]", "[]"))
    (repository / "cgins.yaml").write_text(ONE + CUDA)
    git(repository, "add", "-f", "-A")
    git(repository, "commit", "-q", "-m", "more")
    old.unlink()
    (repository / "test_own.py").write_text("def test_own():\n    pass\n")
    assert run(repository, *FAST, "-k", "own").document()["missing"] == []
    recursing = ("-o", "norecursedirs=none")
    found = run(repository, *FAST, "-k", "own", *recursing)
    assert [name.partition("::")[0] for name in found.document()["missing"]] == ["build/cgins.yaml"], (
        found.out
    )
    assert run(repository, *FAST, "-k", "own", *recursing, "--ignore=build").document()["missing"] == []


@pytest.mark.exam
def test_a_source_that_changes_during_the_run_is_stale(repository: Path, run: Callable[..., Run]) -> None:
    """An evaluation does not stand for a text that was put in the tested one's place: told, and exit 1 in CI."""
    (repository / "cgins.yaml").write_text(ONE + CUDA)
    (repository / "conftest.py").write_text(
        "def pytest_runtest_teardown():\n"
        "    with open('tiny_ops.py', 'a') as text:\n"
        "        text.write('# other\\n')\n"
    )
    found = run(repository, *FAST, "-k", "scaled", env=CI)
    assert (found.code, found.counts) == (1, {"passed": 1}), found.out
    change = "cgins.yaml: kernel scaled/python (cpu): its sources changed (tiny_ops.py)"
    assert found.document()["stale"] == [change]
    assert f"STALE {change} after it was tested: run again" in found.out


@pytest.mark.exam
def test_a_run_that_gates_nothing_fails_in_ci(repository: Path, run: Callable[..., Run]) -> None:
    """All cases skipped, or none there, is exit 5 in CI."""
    (repository / "cgins.yaml").write_text(ONE + CUDA)
    hidden = {"CUDA_VISIBLE_DEVICES": ""}
    found = run(repository, *FAST, "-k", "relu", env=CI | hidden)
    assert (found.code, found.counts) == (5, {"skipped": 2}), found.out
    assert found.document()["exit_status"] == 5
    assert (
        "NOTHING GATED: all 2 cases were skipped; --cgins-allow-fewer lets such a run pass in CI" in found.out
    )
    (repository / "test_own.py").write_text("def test_own():\n    pass\n")
    found = run(repository, *FAST, "test_own.py", env=CI)
    assert (found.code, found.document()["empty"]) == (5, True), found.out
    assert "NOTHING GATED: there was no case" in found.out
    assert (
        "cgins: no cgins.yaml in test_own.py: no kernel is gated\n→ name its folder, or write one"
        in found.out
    )


@pytest.mark.exam
def test_a_test_that_runs_a_kernel_gates(repository: Path, run: Callable[..., Run]) -> None:
    """A user's test with cgins_kernel is no empty run, though it makes no evaluation."""
    (repository / "cgins.yaml").write_text(ONE + CUDA)
    (repository / "test_own.py").write_text(
        "import pytest, torch\n\n\n@pytest.mark.cgins(kernel='scaled')\ndef test_own(cgins_kernel):\n"
        "    assert torch.equal(cgins_kernel(torch.ones(2)), torch.full((2,), 2.0))\n"
    )
    found = run(repository, *FAST, "test_own.py", env=CI)
    assert (found.code, found.document()["empty"]) == (0, False), found.out


@pytest.mark.exam
def test_evaluations_say_what_they_tested(full_run: Run) -> None:
    """Sources, library, trace, pack, settings, version and seed by digest; nothing where nothing was built."""
    found = full_run.evaluations()
    right, wrong = (found[f"relu/{name} {signature}"] for name, signature in _pair(found))
    assert right["tested"]["sources"] == right["kernel_digest"]
    assert right["tested"]["trace"] == right["case"]["trace_id"]
    assert right["tested"]["seed"] == full_run.document()["seed"]
    assert right["tested"]["pack"] == wrong["tested"]["pack"]
    for field in ("sources", "build", "library", "config"):
        assert len(right["tested"][field]) == 64
        assert right["tested"][field] != wrong["tested"][field], field
    assert [one["tested"] for name, one in found.items() if "relu/broken" in name] == [None, None]
    (scaled,) = [one["tested"] for name, one in found.items() if name.startswith("scaled/")]
    assert scaled["library"] == ""


def _pair(found: dict[str, object]) -> list[tuple[str, str]]:
    signature = next(name.split()[1] for name in found if name.startswith("relu/right"))
    return [("right", signature), ("wrong", signature)]


@pytest.mark.exam
def test_only_the_text_of_a_kernel_is_gated(repository: Path, run: Callable[..., Run]) -> None:
    """A wrong source is judged although right bytecode lies beside it, and look-alikes of torch's modules do not run."""
    (repository / "cgins.yaml").write_text(ONE + CUDA)
    source = repository / "tiny_ops.py"
    right = compile(source.read_text(), str(source), "exec")
    source.write_text(source.read_text().replace("return x + x", "return x + x + 1"))
    cached = repository / "__pycache__" / Path(importlib.util.cache_from_source("tiny_ops.py")).name
    cached.parent.mkdir(exist_ok=True)
    unchecked = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8)
    cached.write_bytes(unchecked + marshal.dumps(right))
    for name in ("sitecustomize", "torch", "sympy"):
        (repository / f"{name}.py").write_text(f"open({str(repository / 'ran')!r}, 'a').write(__name__)\n")
    found = run(repository, *FAST, "-k", "scaled")
    assert (found.code, list(found.statuses().values())) == (1, ["INCORRECT"]), found.out
    assert not (repository / "ran").exists()


@pytest.mark.parametrize(
    ("words", "variable", "given"),
    [
        (("--cgins", "--cgins-allow-weaker"), "", True),
        (("--cgins",), "-q --cgins-allow-weaker", True),
        (("--cgins",), "", False),
        (("--cgins", "-k", "cgins-allow-weaker"), "", False),
    ],
    ids=["command line", "variable", "file", "another word"],
)
def test_weaker_settings_are_accepted_on_the_command_line_alone(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], variable: str, given: bool
) -> None:
    """`addopts` of a file, which pytest adds to its options too, are the pull request's own word."""
    monkeypatch.setenv("PYTEST_ADDOPTS", variable)
    config = SimpleNamespace(invocation_params=SimpleNamespace(args=words))
    assert is_given("--cgins-allow-weaker", cast("pytest.Config", config)) == given


@pytest.mark.parametrize("where", ["cgins.yaml", "addopts"])
def test_a_baseline_of_its_own_hides_nothing(
    repository: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A pull request that names its own commit is held against its base all the same, and that is listed."""
    for name in TARGETS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GITHUB_BASE_REF", "main")
    file, option = repository / "cgins.yaml", ""
    if where == "addopts":
        option = "none"
        (repository / "pytest.ini").write_text("[pytest]\naddopts = --cgins-baseline=none\n")
    else:
        file.write_text(ONE.replace("traces:", "gate: {baseline: HEAD}\ntraces:"))
    said = {"--cgins-baseline": option, "--cgins-device": "auto"}
    config = SimpleNamespace(invocation_params=SimpleNamespace(args=["--cgins"]), getoption=said.get)
    coverage = Coverage(cast("pytest.Config", config))
    coverage._files[file] = None
    listed = {
        "cgins.yaml": "cgins.yaml: gate.baseline none → HEAD",
        "addopts": "pytest.ini: addopts none → --cgins-baseline=none",
    }
    assert coverage._held([]).weaker == (listed[where],)
    config.invocation_params.args.append("--cgins-baseline=HEAD")
    said["--cgins-baseline"] = "HEAD"
    assert coverage._held([]).base.endswith("(HEAD)")
