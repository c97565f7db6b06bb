"""`cgins generate`, `cgins run` and `cgins runs`, from the shell's side."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cgins.app import cli
from pytest_cgins.app.commands.import_export import kind_first
from pytest_cgins.config import load
from pytest_cgins.regenerate import run_status
from pytest_cgins.regenerate.journal.journal import Journal, runs_in
from pytest_cgins.run.sandbox.sandbox import Sandbox
from tests.forked_python import gate_python
from tests.regenerate import journals

ROOT = Path(__file__).parents[2]
BENCHMARK = ROOT / "example_project" / "benchmarks" / "initial_testing.json"
NEEDS_SANDBOX = pytest.mark.skipif(bool(Sandbox().available()), reason="this host gives no sandbox")
RECORDING = Path(__file__).parent / "conversations" / "initial_testing"
Ended = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def ended(cgins: Callable[..., subprocess.CompletedProcess[str]]) -> Ended:
    """Runs one command, which has to end with this code."""

    def run(*words: str | Path, folder: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = cgins(folder, *map(str, words))
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return run


def gated(project: str, folder: Path) -> str:
    """What `pytest --cgins` says of a project all of whose cases pass; their acceptance had all probes."""
    gate = [
        "-m",
        "pytest",
        "-p",
        "no:randomly",
        "--cgins",
        "--cgins-no-timing",
        "--cgins-probes=off",
        project,
    ]
    done = gate_python().run(gate, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


SIN = [
    {
        "name": "sin",
        "definitions": [{"variable": "x", "value": "torch.rand(2, 96) * 2 - 1"}],
        "operations": [{"assignment": "s", "operation": "torch.sin", "inputs": ["x"]}],
    }
]


@NEEDS_SANDBOX
def test_a_project_is_made_of_a_benchmark_file_and_gets_another_kernel(tmp_path: Path, ended: Ended) -> None:
    """`cgins run`, then a section llm in its cgins.yaml, `cgins generate` and `cgins proposal apply`: two kernels pass.

    The journals of both runs can be listed, shown, exported and resumed.
    """
    (tmp_path / "sin.json").write_text(json.dumps(SIN))
    run = ("run", "sin.json", "--implementation=cpp", f"--cgins-llm=replay:{RECORDING}", "--cgins-no-timing")
    done = ended(*run, folder=tmp_path)
    assert "cgins: wrote sin/kernels/sin.cpp\n" in done.stderr
    project, runs = tmp_path / "sin", "sin/.cgins/runs"
    (made,) = runs_in(tmp_path / runs)

    answer = (RECORDING / "sin-cpu-cpp" / "attempt-01" / "generator.md").read_text()
    said = project / "answers" / "sine-cpu-cpp" / "attempt-01" / "generator.md"
    said.parent.mkdir(parents=True)
    said.write_text(answer.replace("kernels/sin.cpp", "kernels/sine.cpp").replace("sin_kernel", "sine"))
    with (project / "cgins.yaml").open("a") as file:
        file.write("llm: {provider: replay, path: answers, runs: journals}\n")
    words = (
        "generate",
        "torch.sin",
        "--name=sine",
        "--implementation=cpp",
        "--cgins-no-timing",
        "--cgins-sandbox=off",
    )
    done = ended(*words, folder=project)
    assert "sine-cpu-cpp: accepted after 1 of 5 attempts" in done.stderr
    (generated,) = runs_in(project / "journals")
    ended("proposal", "apply", generated / "proposals" / "sine-cpu-cpp", folder=project)
    assert "2 passed" in gated("sin", tmp_path)
    assert [entry.name for entry in load(project / "cgins.yaml").kernels] == ["sin", "sine"]

    (listed,) = ended("runs", "ls", "--runs", runs, folder=tmp_path).stdout.splitlines()
    assert listed.startswith(f"{made.name}  done     1/1 accepted  ")
    shown = ended("runs", "show", "--runs", "journals", folder=project).stdout
    assert "sine-cpu-cpp: accepted after 1 attempt\n" in shown
    export = ("runs", "export", "--as", "gins", "--out", "gins", "--runs", "journals")
    files = ended(*export, folder=project).stdout.splitlines()
    assert "sin_kernel_final.cpp" in {Path(line).name for line in files}
    again = ended("runs", "resume", "--runs", runs, folder=tmp_path).stderr
    assert f"cgins: run {made.name} is done" in again
    assert again.endswith("cgins: next: pytest --cgins sin\n")


@NEEDS_SANDBOX
@pytest.mark.exam
def test_from_a_benchmark_file_to_kernels_in_one_command(tmp_path: Path, ended: Ended) -> None:
    """matmul and sin are recorded, written, refused by the compiler once, accepted, and gated; nothing else is needed."""
    run = ("run", BENCHMARK, "--implementation=cpp", f"--cgins-llm=replay:{RECORDING}", "--cgins-no-timing")
    done = ended(*run, "--out", "made", folder=tmp_path)
    assert "5 traces" in done.stdout
    project = tmp_path / "made"
    assert sorted(file.name for file in (project / "kernels").iterdir()) == ["matmul.cpp", "sin.cpp"]
    assert "cgins: wrote made/kernels/matmul.cpp\ncgins: wrote made/kernels/sin.cpp\n" in done.stderr
    assert "cgins: next: pytest --cgins made\n" in done.stderr
    assert "5 passed" in gated("made", tmp_path)
    shown = ended("runs", "show", "--runs", "made/.cgins/runs", folder=tmp_path).stdout
    assert "matmul-cpu-cpp: accepted after 2 attempts\n" in shown
    assert "kernels/matmul.cpp:11:129: error: expected ';'" in shown
    assert "sin-cpu-cpp: accepted after 1 attempt\n" in shown
    files = ended(
        "runs", "export", "--as", "gins", "--out", "gins", "--runs", "made/.cgins/runs", folder=tmp_path
    )
    assert sorted(Path(line).name for line in files.stdout.splitlines()) == [
        "matmul_gold.pt", "matmul_inputs.pt", "matmul_iter1.log", "matmul_iter2.log", "matmul_kernel_final.cpp",
        "sin_gold.pt", "sin_inputs.pt", "sin_iter1.log", "sin_kernel_final.cpp",
    ]  # fmt: skip
    again = ended("runs", "resume", "--runs", "made/.cgins/runs", folder=tmp_path)
    assert " is done: cgins runs show " in again.stderr
    assert "cgins: next: pytest --cgins made\n" in again.stderr


@NEEDS_SANDBOX
@pytest.mark.exam
def test_a_run_by_hand_finishes_its_project_when_it_is_resumed(tmp_path: Path, ended: Ended) -> None:
    """Exit 7 while answers are awaited, and the project stays as it is; with the answer resume writes the kernel.

    What nobody answers is given up, and does not come into cgins.yaml.
    """
    done = ended("run", BENCHMARK, "--implementation=cpp", "--cgins-llm=exchange:hand", "--cgins-no-timing",
                 folder=tmp_path, code=7)  # fmt: skip
    assert "cgins: kernels come into initial_testing when the run is done\n" in done.stderr
    project, runs = tmp_path / "initial_testing", Path("initial_testing/.cgins/runs")
    assert not (project / "kernels").exists()
    prompts = sorted(str(file.relative_to(tmp_path)) for file in (tmp_path / "hand").rglob("prompt.md"))
    assert prompts == [f"hand/{name}-cpu-cpp/attempt-01/generator/prompt.md" for name in ("matmul", "sin")]
    shutil.copy(
        RECORDING / "sin-cpu-cpp" / "attempt-01" / "generator.md",
        tmp_path / "hand" / "sin-cpu-cpp" / "attempt-01" / "generator" / "answer.md",
    )
    ended("runs", "resume", "--runs", runs, folder=tmp_path, code=7)
    assert not (project / "kernels").exists()
    shown = ended("runs", "show", "--runs", runs, folder=tmp_path).stdout
    assert "sin-cpu-cpp: accepted after 1 attempt\n" in shown
    assert "  waits for   hand/matmul-cpu-cpp/attempt-01/generator/answer.md" in shown
    done = ended("runs", "resume", "--runs", runs, "--give-up", folder=tmp_path, code=1)
    assert "cgins: wrote initial_testing/kernels/sin.cpp\n" in done.stderr
    assert "cgins: no kernel for torch.matmul: matmul-cpu-cpp failed\n" in done.stderr
    assert [entry.name for entry in load(project / "cgins.yaml").kernels] == ["sin"]
    (listed,) = ended("runs", "ls", "--runs", runs, folder=tmp_path).stdout.splitlines()
    assert "  done     1/2 accepted  " in listed


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cgins.yaml").write_text("version: 1\nkernels: {}\n")
    return tmp_path


def test_no_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty list is one; to show the newest of none is an error that says what to name."""
    assert cli.main(["runs", "ls"]) == 0
    assert capsys.readouterr().err == "cgins: no run in .cgins/runs\n"
    assert cli.main(["runs", "show"]) == 2
    assert capsys.readouterr().err == "cgins: no run in .cgins/runs\n→ name the folder: --runs PATH\n"


def test_runs_are_found_by_name_and_by_folder(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The newest by default, one by its name, one by its folder; a name that is not there has the nearest."""
    one = journals.target()
    old = journals.journal(here / "cgins.yaml", one)
    new = journals.journal(here / "cgins.yaml", one, id="20260203-040506-cd34")
    old_id = old.record.id
    for words, name in (([], new.record.id), ([old_id], old_id), ([str(old.folder)], old_id)):
        assert cli.main(["runs", "show", *words]) == 0
        assert capsys.readouterr().out.startswith(f"run {name}: stopped\n")
    assert cli.main(["runs", "show", "20260203-040506-cd35"]) == 2
    assert 'did you mean "20260203-040506-cd34"?' in capsys.readouterr().err
    (new.folder / "run.json").write_text("{")
    assert cli.main(["runs", "ls"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("20260203-040506-cd34  damaged  ")
    assert second.startswith(f"{old.record.id}  stopped  ")


def test_a_run_that_somebody_works_on_is_not_resumed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An error says so; the run is not touched."""
    run = journals.journal(here / "cgins.yaml", journals.target())
    with Journal.resume(run.folder):
        assert cli.main(["runs", "resume"]) == 2
    assert "is in use by another process" in capsys.readouterr().err


def test_a_sandboxed_run_does_not_go_on_without(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--cgins-sandbox=off is refused for a run that began in one."""
    run = journals.journal(here / "cgins.yaml", journals.target())
    assert cli.main(["runs", "resume", "--cgins-sandbox=off"]) == 2
    assert capsys.readouterr().err.startswith(f"cgins: run {run.record.id} began in a sandbox")


def test_a_run_that_is_done_is_not_worked_on(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Resume of a run without open targets says so, though the project may be another one by now; exit code as before."""
    good, bad = journals.target(), journals.target("silu")
    run = journals.journal(here / "cgins.yaml", good, bad)
    journals.settle(run, good, "accepted", {"k.cpp": "x"})
    journals.settle(run, bad, "failed", {})
    assert cli.main(["runs", "resume"]) == 1
    name = run.record.id
    assert capsys.readouterr().err == f"cgins: run {name} is done: cgins runs show {name}\n"


def test_a_run_can_be_given_up(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is open fails with its last source, what is accepted stays."""
    good, bad = journals.target(), journals.target("silu")
    run = journals.journal(here / "cgins.yaml", good, bad)
    journals.settle(run, good, "accepted", {"k.cpp": "x"})
    journals.attempt(run, bad, 1, sources={"k.cpp": "first"})
    journals.attempt(run, bad, 2)
    assert cli.main(["runs", "resume", "--give-up"]) == 1
    assert (run.folder / bad.name / "FAILED" / "k.cpp").read_text() == "first"
    assert run_status.state_of(run) == "done"
    result = run.result(bad)
    assert result is not None
    assert (result.state, result.why, len(result.attempts)) == ("failed", "given up", 2)


def test_the_skill_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """It has a head with name and description, as agents' skills do, and names the commands and files that there are."""
    assert cli.main(["runs", "skill"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("---\nname: answer-kernel-prompts\ndescription: ")
    words = "answer.md", "prompt.md", "cgins runs resume", "cgins runs show", "<<<<<<< SEARCH", "--give-up"
    assert [word for word in words if word not in text] == []


def test_candidates_need_their_device(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a GPU nothing is asked for in CUDA: an error that names C++."""
    monkeypatch.setattr("pytest_cgins.run.sandbox.outside.has_gpu", lambda: False)
    for words in (["generate", "gelu"], ["run", "x.json", "--cgins-llm=replay:x"]):
        assert cli.main(words) == 2
        told = capsys.readouterr().err
        assert told.startswith("cgins: --implementation cuda: kernels could not be tried")
        assert "--implementation cpp" in told


def test_a_run_needs_somebody_to_ask(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """That is found out before anything is recorded."""
    assert cli.main(["run", str(BENCHMARK), "--implementation=cpp"]) == 2
    assert "no model is configured\n→ give --cgins-llm=PROVIDER" in capsys.readouterr().err
    assert [file.name for file in here.iterdir()] == ["cgins.yaml"]


def test_generate_adds_to_a_file_named_cgins_yaml(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another one could not be proposed: that is said before a model is asked."""
    (here / "cgins.yaml").rename(here / "production.yaml")
    words = ["generate", "gelu", "--config=production.yaml", "--implementation=cpp", "--cgins-llm=exchange:x"]
    assert cli.main(words) == 2
    told = capsys.readouterr().err
    assert "production.yaml: a proposal adds its kernel to a file named cgins.yaml" in told
    assert "→ name it so" in told
    assert not (here / "x").exists()


def test_generate_knows_what_is_recorded(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An op without a trace is an error that says how to record it; no run is begun."""
    assert cli.main(["generate", "gelu", "--implementation=cpp", "--cgins-llm=exchange:x"]) == 2
    assert "no trace of gelu" in capsys.readouterr().err
    assert runs_in(here / ".cgins" / "runs") == ()


def test_a_source_that_is_there_is_not_written_anew(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its proposal would be refused: that is said before a model is asked."""
    project = Path(shutil.copytree(recorded, tmp_path / "project"))
    (project / "cgins.yaml").write_text("version: 1\ntraces: [traces/tiny]\nkernels: {}\n")
    monkeypatch.chdir(project)
    assert cli.main(["generate", "relu", "--implementation=cpp", "--cgins-llm=exchange:x"]) == 2
    assert "kernels/relu.cpp: already exists, and the kernel is new\n→ " in capsys.readouterr().err
    assert not (project / "x").exists()


def test_export_keeps_its_own_as() -> None:
    """`--as` belongs to `cgins runs export`, which is not `cgins export KERNEL --as KIND`."""
    words = ["--log-level", "info", "runs", "export", "--as", "gins", "--out", "files"]
    assert kind_first(words) == words
    assert kind_first(["export", "runs", "--as=torch-library"]) == [
        "export",
        "torch-library",
        "runs",
    ]
