"""`cgins run`: the project that is made of a benchmark file, and what it has at the end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_cgins import config as configuration
from pytest_cgins.config import Config
from pytest_cgins.core.errors import ConfigError, RecordError, RegenerateError
from pytest_cgins.regenerate.attempt import Result, Target
from pytest_cgins.regenerate.budget import Spent
from pytest_cgins.regenerate.gins import benchmark_project
from pytest_cgins.regenerate.run_status import RunResult
from tests.regenerate import journals

PROGRAMS = [
    {
        "name": "twins",
        "definitions": [{"variable": "x", "value": "torch.randn(4, 5)"}],
        "operations": [
            {"assignment": "a", "operation": "torch.softmax", "inputs": ["x", "dim=1"]},
            {"assignment": "b", "operation": "torch.nn.functional.softmax", "inputs": ["a", "dim=0"]},
            {"assignment": "c", "operation": "os.system", "inputs": ["x"]},
        ],
    }
]
ENTRY = """\
  {0}:
    op: torch.{0}
    implementations:
      - {{name: cpp, device: cpu, source: kernels/{0}.cpp}}
"""
HEAD = "version: 1\nkernels:\n"
EMPTY = "version: 1\nkernels: {}\n"


def made(folder: Path, *names: str, tail: str = "") -> tuple[Config, tuple[Target, ...]]:
    """A project as `prepare` leaves it, without traces."""
    folder.mkdir(exist_ok=True)
    (folder / "cgins.yaml").write_text(EMPTY + tail)
    config = configuration.load(folder / "cgins.yaml")
    return config, tuple(journals.target(name, op=f"torch.{name}", goal="generate") for name in names)


def overlays(config: Config, targets: Iterable[Target], top: str = "") -> dict[str, dict[str, str]]:
    """What the run adds to the project for each target."""
    text = config.file.read_text()
    return {
        one.name: {f"{top}cgins.yaml": text.replace("kernels: {}\n", "kernels:\n" + ENTRY.format(one.kernel))}
        for one in targets
    }


def ran(config: Config, states: Mapping[Target, str], text: str = "right\n") -> RunResult:
    """A run with these ends, each of whose final or last sources is `text`."""
    run = journals.journal(config.file, *states, overlays=overlays(config, states), made_project=True)
    results = []
    for one, state in states.items():
        journals.attempt(run, one)
        result = Result(target=one, state=state, attempts=(), why="")  # type: ignore[arg-type]
        if state in ("accepted", "failed"):
            result = journals.settle(run, one, state, {f"kernels/{one.kernel}.cpp": text})
        results.append(result)
    return RunResult(journal=run.folder, results=tuple(results), spent=Spent())


def kernels(config: Config) -> list[str]:
    """Names of the kernels in the file, with their sources there."""
    return [entry.name for entry in configuration.load(config.file).kernels]


@pytest.mark.exam
def test_a_project_of_a_benchmark_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The ops are recorded, each has an overlay with its entry alone, and what was left out is told."""
    file = tmp_path / "two programs.json"
    file.write_text(json.dumps(PROGRAMS))
    config, planned = benchmark_project.prepare(
        file, tmp_path / "deep" / "made", language="cpp", contract=None
    )
    targets = [one.target for one in planned]
    assert config.root == tmp_path / "deep" / "made"
    assert [pack.name for pack in config.traces] == ["two_programs"]
    assert [(one.op, one.kernel, one.goal, one.device) for one in targets] == [
        ("torch.nn.functional.softmax", "softmax", "generate", "cpu"),
        ("torch.softmax", "torch_softmax", "generate", "cpu"),
    ]
    assert configuration.load(config.file) == config
    assert config.kernels == ()
    added = [[entry.implementations[0].sources for entry in one.config.kernels] for one in planned]
    places = [config.root / "kernels" / name for name in ("softmax.cpp", "torch_softmax.cpp")]
    assert added == [[(place,)] for place in places]
    told = capfd.readouterr().out
    assert "torch.softmax" in told
    assert "left out  twins/2:c: os.system is not a torch op" in told


def test_a_folder_with_a_project_is_left_alone(tmp_path: Path) -> None:
    """It is refused before anything is recorded, by its name."""
    (tmp_path / "cgins.yaml").write_text("mine")
    with pytest.raises(ConfigError) as error:
        benchmark_project.prepare(tmp_path / "x.json", tmp_path, language="cpp", contract=None)
    assert str(error.value).startswith(f"{tmp_path / 'cgins.yaml'} already exists\n→ name a new folder")
    assert "cgins runs resume --runs" in str(error.value)
    assert [file.name for file in tmp_path.iterdir()] == ["cgins.yaml"]


@pytest.mark.exam
def test_a_file_that_gives_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The import says why, and there is no cgins.yaml that would be in the way of the next try."""
    with pytest.raises(RecordError, match=r"no trace could be made of .*missing\.json"):
        benchmark_project.prepare(tmp_path / "missing.json", tmp_path, language="cpp", contract=None)
    assert "missing.json does not exist" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_plan_that_fails_leaves_no_cgins_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the language does not have is told, and the command can be given again."""
    monkeypatch.setattr(benchmark_project, "imported", lambda words, _: _pack(Path(words[-1])))
    with pytest.raises(ConfigError, match="not for C\\+\\+ on a CPU"):
        benchmark_project.prepare(tmp_path / "x.json", tmp_path, language="cpp", contract="device")
    assert not (tmp_path / "cgins.yaml").exists()


def _pack(folder: Path) -> None:
    import torch

    from pytest_cgins import record

    with record(folder, ops=["torch.sin"]):
        torch.sin(torch.ones(3))


def test_accepted_sources_are_written_with_their_entries(tmp_path: Path) -> None:
    """The project has what was accepted; where the last source of the others is, is told. Once more changes nothing."""
    config, (sin, cos, exp) = made(tmp_path / "p", "sin", "cos", "exp")
    end = ran(config, {sin: "failed", cos: "accepted", exp: "failed"})
    told = benchmark_project.settle(config, end)
    assert kernels(config) == ["cos"]
    assert config.file.read_text() == HEAD + ENTRY.format("cos")
    assert (config.root / "kernels" / "cos.cpp").read_text() == "right\n"
    assert sorted(file.name for file in (config.root / "kernels").iterdir()) == ["cos.cpp"]
    left_out = "no kernel for torch.{0}: {0}-cpu-cpp failed; its last source is in {1}/{0}-cpu-cpp/FAILED"
    assert told == (
        f"wrote {config.root}/kernels/cos.cpp",
        left_out.format("sin", end.journal),
        left_out.format("exp", end.journal),
        f"next: pytest --cgins {config.root}",
    )
    now = configuration.load(config.file)
    assert benchmark_project.settle(now, end) == told[1:]
    assert kernels(config) == ["cos"]


@pytest.mark.parametrize("open_", ["waiting", "stopped"])
def test_nothing_is_touched_while_something_is_open(tmp_path: Path, open_: str) -> None:
    """A target that waits or was stopped can be resumed, for which sources and cgins.yaml must be as they were."""
    config, (sin, cos) = made(tmp_path / "p", "sin", "cos")
    before = config.file.read_bytes()
    told = benchmark_project.settle(config, ran(config, {sin: "accepted", cos: open_}))
    assert told == (f"kernels come into {config.root} when the run is done",)
    assert config.file.read_bytes() == before
    assert not (config.root / "kernels").exists()


def test_entries_keep_the_order_and_the_rest_of_the_file(tmp_path: Path) -> None:
    """Several accepted kernels stand in one file, one after the other; what a person added there stays."""
    llm = "llm:\n  provider: exchange  # by hand\n"
    config, targets = made(tmp_path / "p", "sin", "cos", "exp", tail=llm)
    benchmark_project.settle(config, ran(config, dict.fromkeys(targets, "accepted")))
    assert kernels(config) == ["sin", "cos", "exp"]
    assert config.file.read_text() == HEAD + "".join(map(ENTRY.format, ("sin", "cos", "exp"))) + llm


def test_no_kernel_at_all(tmp_path: Path) -> None:
    """A file without kernels loads, and keeps what else it says."""
    llm = "llm:\n  provider: exchange\n"
    config, (sin,) = made(tmp_path / "p", "sin", tail=llm)
    told = benchmark_project.settle(config, ran(config, {sin: "failed"}))
    assert config.file.read_text() == f"version: 1\nkernels: {{}}\n{llm}"
    assert kernels(config) == []
    assert told[-1] == f"{config.file} has traces, and no kernel: none was accepted"


def test_a_source_of_somebody_else_is_not_overwritten(tmp_path: Path) -> None:
    """A file that is there and is another one is an error that names it; the same one is fine."""
    config, (sin,) = made(tmp_path / "p", "sin")
    end = ran(config, {sin: "accepted"})
    place = config.root / "kernels" / "sin.cpp"
    place.parent.mkdir()
    place.write_text("mine\n")
    with pytest.raises(RegenerateError, match=r"sin\.cpp is there, and is not what the run accepted"):
        benchmark_project.settle(config, end)
    assert place.read_text() == "mine\n"
    place.write_text("right\n")
    assert benchmark_project.settle(config, end) == (f"next: pytest --cgins {config.root}",)


def test_only_own_sources_are_written(tmp_path: Path) -> None:
    """A journal that somebody changed writes nowhere else."""
    config, (sin,) = made(tmp_path / "p", "sin")
    end = ran(config, {sin: "accepted"})
    final = end.journal / "sin-cpu-cpp" / "final"
    (final / "conftest.py").write_text("import os")
    with pytest.raises(RegenerateError, match=r"conftest\.py is not a source of sin-cpu-cpp"):
        benchmark_project.settle(config, end)
    assert not (config.root / "conftest.py").exists()


def test_a_project_inside_of_a_repository(tmp_path: Path) -> None:
    """Paths of a journal begin at the repository's top, and lead into the project."""
    from tests.regenerate.projects import git

    git(tmp_path, "init", "-q")
    config, (sin,) = made(tmp_path / "p", "sin")
    end = ran(config, {})
    run = journals.journal(
        config.file, sin, runs=tmp_path / "runs", overlays=overlays(config, [sin], "p/"), made_project=True
    )
    result = journals.settle(run, sin, "accepted", {"p/kernels/sin.cpp": "right\n"})
    benchmark_project.settle(config, replace(end, journal=run.folder, results=(result,)))
    assert (tmp_path / "p" / "kernels" / "sin.cpp").read_text() == "right\n"
    assert not (tmp_path / "kernels").exists()
