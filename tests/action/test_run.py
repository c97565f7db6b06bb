"""The action's steps, run in a small project as GitHub would: see local_runner."""

from __future__ import annotations

import html
import json
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import junitparser
import pytest

from tests.action import events
from tests.action.local_runner import ACTION, Job, Runner, Services, document

PLAYED_STEPS = {
    "Restore packs", "Restore built kernels", "Restore verdicts", "Upload the report", "Keep built kernels", "Keep verdicts"
}  # fmt: skip
SECRETS = {"GITHUB_TOKEN": "s3cret", "GH_TOKEN": "s3cret", "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "s3cret"}


def test_only_steps_of_other_actions_are_played() -> None:
    """All `run:` steps are run by this file; those of other actions are the ones that are named."""
    steps = document()["runs"]["steps"]
    assert {step["name"] for step in steps if "uses" in step} == PLAYED_STEPS


@pytest.fixture(scope="module")
def failed(runner: Runner, recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """The action on all kernels of the project, in folders with blanks, from a job that has secrets."""
    folder = tmp_path_factory.mktemp("failed")
    shutil.copytree(recorded, folder / "check out" / "my project")
    return runner.run(
        folder / "check out",
        folder / "runner temp",
        action=Path(shutil.copytree(ACTION, folder / "my actions" / "action")),
        env=SECRETS,
        working_directory="my project",
        seed="7",
        timing="false",
        pytest_args="-p no:cacheprovider --durations=0 -o 'console_output_style=classic'",
        json="out put/report.json",
    )


@pytest.mark.exam
def test_failing_gate_ends_in_its_exit_code_after_summary_and_upload(failed: Job) -> None:
    """With a wrong kernel the action ends in 1, last of all; outputs, summary, upload and cache are as ever."""
    assert failed.code == 1, failed.log
    report = Path(failed.outputs.pop("report-path"))
    assert report.parts[-3:] == ("my project", "out put", "report.json")
    assert failed.outputs == {
        "status": "failed",
        "verdict": "INCORRECT",
        "exit-code": "1",
        "base": "",
        "total": "4",
        "passed": "1",
        "failed": "2",
        "regressed-count": "0",
        "errors": "0",
        "skipped": "1",
        "weak": "0",
    }
    assert json.loads(report.read_text())["seed"] == 7
    assert failed.summary.startswith("## cgins: 2 failed, 1 skipped, 1 passed\n")
    assert "pytest --cgins --cgins-seed=7 cgins.yaml::relu/cpu-wrong/tiny/" in html.unescape(failed.summary)
    shown = [report.with_suffix(suffix) for suffix in (".json", ".html", ".xml")]
    assert failed.used["Upload the report"]["path"].split("\n") == list(map(str, shown))
    assert "relu/cpu-wrong" in shown[1].read_text()
    assert junitparser.JUnitXml.fromfile(str(shown[2])).failures == 2
    assert failed.used["Keep built kernels"]["key"] == failed.used["Restore built kernels"]["key"]
    near, prefix = failed.used["Restore built kernels"]["restore-keys"].split()
    assert failed.used["Keep built kernels"]["key"].startswith(near)
    assert near.startswith(prefix + "cpu")
    assert failed.ran[-2:] == ["Prune built kernels", "Verdict"]
    assert " removed from " in failed.log


@pytest.mark.exam
def test_reproduction_line_selects_its_case(failed: Job) -> None:
    """The command in the summary, pasted where the gate ran, collects the failed case and no other."""
    words = re.search(r"<code>(pytest --cgins [^<]*cpu-wrong[^<]*)</code>", failed.summary)
    assert words
    command = [sys.executable, "-m", *shlex.split(html.unescape(words[1])), "--collect-only", "-q"]
    folder = Path(failed.used["Upload the report"]["path"].partition("\n")[0]).parents[1]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    nodes = [line for line in done.stdout.splitlines() if line.startswith("cgins.yaml::")]
    assert [node.partition("/tiny/")[0] for node in nodes] == ["cgins.yaml::relu/cpu-wrong"]


@pytest.mark.exam
def test_repository_under_test_forges_nothing(failed: Job) -> None:
    """Its output gives no commands, its tests see no tokens and no files of the runner, its texts stay texts."""
    assert "::error::forged by conftest" in failed.log
    *annotations, verdict = failed.commands
    assert [command.split("::")[1] for command in annotations] == [
        "error file=my project/kernels/relu.cpp,line=1,title=cgins%3A relu/wrong INCORRECT",
        "error file=my project/kernels/relu.cpp,line=1,title=cgins%3A relu/hostile RUNTIME_ERROR",
    ]
    assert [verdict] == [
        "::error title=pytest-cgins::status failed, exit code 1: 2 failed and 0 errors in 4 cases"
    ]
    assert failed.environment == ""
    (variables,) = (line for line in failed.log.splitlines() if line.startswith("variables:"))
    told = {"GITHUB_ACTIONS", "GITHUB_ACTION_PATH", "GITHUB_EVENT_PATH", "GITHUB_WORKSPACE"}
    assert set(variables.split()[1:]) == told | events.event("push").variables().keys()
    lines = [line for line in failed.summary.splitlines() if "forged" in line]
    assert lines
    assert all(line.startswith(("<tr><td><code>", "<details><summary><code>")) for line in lines)


@pytest.mark.exam
def test_restored_kernels_are_used_and_not_saved_again(
    runner: Runner, failed: Job, workspace: Path, tmp_path: Path
) -> None:
    """One right kernel, timed, is a pass; with the cache of an earlier run nothing is built and nothing is kept."""
    services = Services(tmp_path / "services")
    shutil.copytree(
        Path(failed.used["Keep built kernels"]["path"]).parent / "services" / "caches",
        services.folder / "caches",
    )
    job = runner.run(
        workspace,
        tmp_path / "temp",
        services=services,
        working_directory="my project",
        pytest_args="-k right",
    )
    assert (job.code, job.outputs["status"], job.outputs["passed"]) == (0, "passed", "1"), job.log
    assert job.commands == []
    assert "### Times" in job.summary
    assert "nothing had to be built" in job.log
    assert "Keep built kernels" not in job.used
    assert "Prune built kernels" not in job.ran
    assert job.outputs["report-path"] == str(tmp_path / "temp" / "cgins" / "report.json")


@pytest.mark.exam
def test_lost_gpu_is_not_a_pass(runner: Runner, workspace: Path, tmp_path: Path) -> None:
    """A run in which every case was skipped ends in 5."""
    options = {
        "working_directory": "my project",
        "pytest_args": "-k cuda",
        "cache": "false",
        "artifact_name": "",
    }
    job = runner.run(workspace, tmp_path / "temp", **options)
    assert (job.code, job.outputs["status"], job.outputs["exit-code"]) == (5, "empty", "5"), job.log
    assert "<strong>Nothing was gated</strong>: <code>the only case was skipped; " in job.summary
    assert job.used == {}


@pytest.mark.exam
@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")
def test_kernels_are_built_for_architectures_that_are_not_there(
    runner: Runner, workspace: Path, tmp_path: Path
) -> None:
    """With compile-only the CUDA kernels are built, none is run, and summary and counts are of builds."""
    job = runner.run(
        workspace,
        tmp_path / "temp",
        working_directory="my project",
        compile_only="true",
        archs="sm_80",
        baseline="none",
    )
    assert (job.code, job.outputs["status"], job.outputs["total"]) == (0, "passed", "1"), job.log
    assert "--cgins-compile-only --cgins-arch=sm_80 --cgins-baseline=none" in job.log
    assert "### Builds" in job.summary
    assert "compared with nothing, as asked" in job.summary


@pytest.mark.exam
def test_report_of_the_checkout_is_no_report_of_the_run(
    runner: Runner, workspace: Path, tmp_path: Path
) -> None:
    """A broken cgins.yaml gives pytest's own exit code, and a report that was there before is gone."""
    project = workspace / "my project"
    (project / "report.json").write_text('{"forged": true}')
    (project / "cgins.yaml").write_text("version: 99\n")
    job = runner.run(workspace, tmp_path / "temp", working_directory="my project", json="report.json")
    assert job.code == 2, job.log
    assert job.outputs["status"] == "error"
    assert "forged" not in job.summary


@pytest.mark.exam
def test_clean_run_without_readable_report_fails(runner: Runner, workspace: Path, tmp_path: Path) -> None:
    """If the arguments send the report elsewhere, exit 0 of pytest becomes 4: nothing is known."""
    arguments = f"-k 'nothing or right' --collect-only --cgins-json='{tmp_path}/elsewhere.json'"
    job = runner.run(workspace, tmp_path / "temp", working_directory="my project", pytest_args=arguments)
    assert job.code == 4, job.log
    assert job.summary.startswith("## cgins: no report\n")
    assert job.outputs["report-path"] == ""
    assert "Upload the report" not in job.used


@pytest.mark.exam
def test_wrong_inputs_end_before_anything_is_installed(
    runner: Runner, workspace: Path, tmp_path: Path
) -> None:
    """An input that is wrong is named in an annotation, and no other step runs."""
    wrong = {
        "working_directory": "nowhere",
        "device": "gpu",
        "strict": "yes",
        "seed": "-1",
        "pytest_args": "'",
        "retention_days": "a week",
        "cache_key_suffix": "a,b",
        "requirements": "nowhere.txt",
        "package": "pytest-cgins",
        "json": "my project",
        "python": "no such python",
        "compile_only": "yes",
        "archs": "sm_80",
        "baseline": "a b",
        "torch_index": "somewhere",
        "extras": "nvcc;sass",
        "packs": "traces",
        "packs_key": "a,b",
        "annotations": "yes",
        "store": "a\nb",
    }
    for number, (name, value) in enumerate(wrong.items()):
        job = runner.run(workspace, tmp_path / str(number), **{name: value})
        assert (job.code, job.ran) == (2, ["Check the inputs"]), job.log
        (command,) = job.commands
        named = "packs-key" if name == "packs" else name.replace("_", "-")
        assert command.startswith(f"::error title=pytest-cgins::input {named}: ")
        assert job.outputs["exit-code"] == ""


def test_interpreter_without_the_package_is_told(runner: Runner, workspace: Path, tmp_path: Path) -> None:
    """With install none and nothing installed, the remedy is named and the gate does not run."""
    bare = tmp_path / "bare python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -E -S "$@"\n')
    bare.chmod(0o755)
    job = runner.run(workspace, tmp_path / "temp", python=str(bare))
    assert job.code == 2
    assert "set the input install to pip" in job.commands[0]
    assert "Gate" not in job.ran


@pytest.mark.exam
def test_pip_installs_the_revision_of_the_action(runner: Runner, workspace: Path, tmp_path: Path) -> None:
    """By default pip gets this very tree; torch's index, requirements and constraints are used as they are given."""
    environment = tmp_path / "new env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (site,) = environment.glob("lib/python3*/site-packages")
    # pip and all that is to be installed besides are there already: no index is needed.
    (site / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    project = workspace / "my project"
    (project / "my requirements.txt").write_text("pyyaml\n")
    (project / "constraints.txt").write_text("pyyaml<1000\n")
    job = runner.run(
        workspace,
        tmp_path / "temp",
        # "false" turns pip's isolation off, not on.
        env={"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "false"},
        python=str(environment / "bin" / "python"),
        install="pip",
        torch_index=(tmp_path / "index").as_uri(),
        requirements="my requirements.txt",
        constraints="constraints.txt",
        extras="triton,sass",
        working_directory="my project",
        pytest_args="-k no-such-kernel",
    )
    assert "Successfully installed pytest-cgins" in job.log, job.log
    assert "-r 'my requirements.txt' -c constraints.txt\n" in job.log
    # torch comes first, from its own index; nothing else is looked for there.
    installs = [line for line in job.log.splitlines() if " -m pip install " in line]
    assert [("--index-url" in line, line.endswith(" torch")) for line in installs] == [
        (True, True),
        (False, False),
    ]
    assert "/..[triton,sass]" in installs[1].replace("'", "")
    assert (site / "pytest_cgins" / "plugin.py").is_file()
    assert (job.code, job.outputs["status"]) == (5, "empty")


@pytest.mark.exam
def test_failed_installation_is_no_verdict(runner: Runner, workspace: Path, tmp_path: Path) -> None:
    """If pip fails, its exit code is the action's, the gate does not run, and no output claims anything."""
    job = runner.run(
        workspace, tmp_path / "temp", install="pip", package="./nowhere", env={"PIP_NO_INDEX": "1"}
    )
    assert job.code == 1
    assert job.ran == ["Check the inputs", "Find the base", "Install pytest-cgins"]
    assert set(job.outputs.values()) == {""}
    assert job.commands == []
