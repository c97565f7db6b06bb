"""The action's scripts by themselves: the cache key, and what is made of a report."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path

import pytest

from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Status
from pytest_cgins.report import document
from tests.action.local_runner import ACTION, obeyed, parse_outputs
from tests.forked_python import gate_python

Make = Callable[..., Evaluation]
Keys = Callable[..., dict[str, str]]


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    """Runs cache_key.py on a folder and gives its outputs; `python_code` runs before it in its interpreter."""

    def keys(folder: Path, suffix: str = "", python_code: str = "", **env: str) -> dict[str, str]:
        output = tmp_path / "github-output"
        output.unlink(missing_ok=True)
        code = f"import sys; sys.path.insert(0, {str(ACTION)!r})\nimport cache_key\n{python_code}\ncache_key.main()"
        runner = {"RUNNER_OS": "Linux", "RUNNER_ARCH": "X64", "GITHUB_OUTPUT": str(output)}
        step = {"CGINS_FOLDER": str(folder), "INPUT_CACHE_KEY_SUFFIX": suffix}
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PATH": os.environ["PATH"], **runner, **step, **env},
            check=True,
        )
        return parse_outputs(output.read_text())

    return keys


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder with a kernel, a header and things that are none."""
    folder = tmp_path / "some kernels"
    for name in (
        "cgins.yaml",
        "k/a.cu",
        "k/a.h",
        "README.md",
        ".git/x.cpp",
        "venv/pyvenv.cfg",
        "venv/lib/y.cpp",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def test_key_names_system_interpreter_torch_compilers_and_processor(keys: Keys, sources: Path) -> None:
    """All that makes a cache useless elsewhere is in the prefix; the key adds the processor and the sources."""
    found = keys(sources, suffix="clang.18")
    version = f"py{sys.version_info[0]}.{sys.version_info[1]}"
    assert found["prefix"].startswith(f"cgins-clang.18-Linux-X64-{version}-torch")
    for part in ("-torch", "-cuda", "-nvcc", "-cxx"):
        assert part in found["prefix"]
    assert re.fullmatch(r"cpu(any|[0-9a-f]{8})-", found["near"].removeprefix(found["prefix"]))
    assert found["key"].removeprefix(found["near"]).isalnum()
    assert len(found["key"]) < 512
    assert "," not in found["key"]


@pytest.mark.exam
def test_key_follows_the_sources_and_nothing_else(keys: Keys, sources: Path) -> None:
    """A kernel's text, name or a header changes the key; documents, hidden folders and environments do not."""
    before = keys(sources)
    for name in ("README.md", ".git/x.cpp", "venv/lib/y.cpp"):
        (sources / name).write_text("changed")
    assert keys(sources) == before
    seen = {before["key"]}
    (sources / "k/a.h").write_text("changed")
    seen.add(keys(sources)["key"])
    (sources / "k/a.cu").rename(sources / "k/b.cu")
    seen.add(keys(sources)["key"])
    (sources / "cgins.yaml").write_text("changed")
    after = keys(sources)
    seen.add(after["key"])
    assert len(seen) == 4
    assert after["prefix"] == before["prefix"]


@pytest.mark.parametrize(
    ("version_py", "cuda"),
    [
        ("cuda: Optional[str] = '13.0'\n", "cuda13.0"),
        ('__version__ = "2.6.0+cu124"\ncuda = "12.4"\n', "cuda12.4"),
        ("cuda: Optional[str] = None\n", "cudanone"),
    ],
)
def test_cuda_version_is_read_from_torch_without_importing_it(
    keys: Keys, sources: Path, tmp_path: Path, version_py: str, cuda: str
) -> None:
    """torch's own version file says what it was built with; another torch is another prefix."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "version.py").write_text(version_py)
    (tmp_path / "torch-2.6.0+cu124.dist-info").mkdir()
    (tmp_path / "torch-2.6.0+cu124.dist-info" / "METADATA").write_text("Name: torch\nVersion: 2.6.0+cu124\n")
    found = keys(sources, python_code=f"sys.path.insert(0, {str(tmp_path)!r})")
    assert f"-torch2.6.0-cu124-{cuda}-" in found["prefix"]


@pytest.mark.exam
def test_compiler_is_part_of_the_key(keys: Keys, sources: Path, tmp_path: Path) -> None:
    """nvcc under CUDA_HOME is asked for its version; one that fails is as good as none."""
    nvcc = tmp_path / "cuda home" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.8, V12.8.93'\n")
    nvcc.chmod(0o755)
    assert "-nvcc12.8.93-" in keys(sources, CUDA_HOME=str(tmp_path / "cuda home"))["prefix"]
    nvcc.write_text("#!/bin/sh\nexit 1\n")
    assert "-nvccnone-" in keys(sources, CUDA_HOME=str(tmp_path / "cuda home"))["prefix"]
    cxx = tmp_path / "my-g++"
    cxx.write_text("#!/bin/sh\n[ $1 = -Dx ] && echo 14.2.0\n")
    cxx.chmod(0o755)
    assert "-cxx14.2.0-" in keys(sources, CXX=f"{cxx} -Dx")["prefix"]
    assert "-cxxnone-" in keys(sources, CXX="false")["prefix"]


class Finish:
    """Runs report.sh on a report with cases of the given statuses."""

    def __init__(self, make: Make, folder: Path) -> None:
        self.make = make
        self.report = folder / "a report.json"
        self.files = {name: folder / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        self.log = ""

    def write(self, *statuses: Status, strict: bool = False) -> None:
        evaluations = [self.make(status, signature=f"s{number}") for number, status in enumerate(statuses)]
        now = datetime(2026, 1, 2, tzinfo=timezone.utc)
        document.write(
            document.session_report(
                evaluations,
                [],
                version="1",
                seed=7,
                started_at=now,
                seconds=1.0,
                exit_status=0,
                strict=strict,
            ),
            self.report,
        )

    def run(self, code: int, *, allow_empty: bool = False) -> dict[str, str]:
        for file in self.files.values():
            file.write_text("")
        env = {
            **os.environ,
            **{name: str(file) for name, file in self.files.items()},
            "GITHUB_ACTION_PATH": str(ACTION),
            "CGINS_PYTHON": str(gate_python().executable()),
            "CGINS_REPORT": str(self.report),
            "CGINS_EXIT_CODE": str(code),
            "INPUT_SUMMARY": "true",
            "INPUT_ALLOW_EMPTY": str(allow_empty).lower(),
        }
        done = subprocess.run(
            ["bash", str(ACTION / "report.sh")], env=env, capture_output=True, text=True, check=True
        )
        self.log = done.stdout + done.stderr
        assert obeyed(done.stdout) == []
        return parse_outputs(self.files["GITHUB_OUTPUT"].read_text())

    @property
    def summary(self) -> str:
        return self.files["GITHUB_STEP_SUMMARY"].read_text(encoding="utf-8")


@pytest.fixture
def finish(make_evaluation: Make, tmp_path: Path) -> Finish:
    return Finish(make_evaluation, tmp_path)


@pytest.mark.exam
@pytest.mark.parametrize(
    ("code", "status"),
    [(0, "passed"), (1, "failed"), (5, "empty"), (6, "infrastructure"), (137, "error")],
)
def test_every_exit_code_has_a_status(finish: Finish, code: int, status: str) -> None:
    """The gate's exit code stays what it is, and has a name."""
    finish.write(Status.PASSED)
    found = finish.run(code)
    assert (found["status"], found["exit-code"]) == (status, str(code)), finish.log
    assert found["report-path"] == str(finish.report)
    assert found["files"].split("\n") == [
        str(finish.report.with_suffix(one)) for one in (".json", ".html", ".xml")
    ]
    assert all(Path(one).stat().st_size for one in found["files"].split("\n"))


@pytest.mark.exam
def test_only_skips_are_empty_unless_allowed(finish: Finish) -> None:
    """Nothing gated is 5 and says so in the summary; allowed, or with one case gated, it is a pass."""
    finish.write(Status.SKIPPED, Status.SKIPPED)
    found = finish.run(0)
    assert (found["status"], found["exit-code"]) == ("empty", "5")
    assert finish.summary.startswith("**Nothing was gated**")
    assert finish.run(0, allow_empty=True)["exit-code"] == "0"
    assert finish.run(1)["exit-code"] == "1"
    found = finish.run(5, allow_empty=True)
    assert (found["status"], found["exit-code"]) == ("passed", "0")
    finish.write(Status.SKIPPED, Status.PASSED)
    assert finish.run(0)["status"] == "passed"


@pytest.mark.exam
def test_strict_counts_weak_cases_as_failures(finish: Finish) -> None:
    """Counts and summary know from the report whether the run was strict."""
    for strict in (False, True):
        finish.write(Status.WEAK, Status.PASSED, strict=strict)
        assert finish.run(1)["failed"] == str(int(strict))
    assert finish.summary.startswith("## cgins: 1 failed, 1 passed (1 weak)\n")


@pytest.mark.exam
def test_worst_status_and_regressions_are_told(finish: Finish) -> None:
    """The verdict is the worst status; slower kernels are counted, and wrong ones are not among them."""
    finish.write(Status.PASSED, Status.SLOWER, Status.FASTER)
    found = finish.run(1)
    assert (found["verdict"], found["regressed"], found["failed"]) == ("SLOWER", "1", "1")
    finish.write(Status.SLOWER, Status.INCORRECT)
    found = finish.run(1)
    assert (found["verdict"], found["regressed"], found["failed"]) == ("INCORRECT", "1", "2")


@pytest.mark.exam
@pytest.mark.parametrize("text", [None, "", '{"::error::forged": "##[error]forged"}'])
def test_damaged_report_is_not_uploaded_and_not_a_pass(finish: Finish, text: str | None) -> None:
    """Without a readable report a clean run is 4, a failed one stays what it was, and counts are 0."""
    if text is not None:
        finish.report.write_text(text)
    found = finish.run(0)
    assert found == {
        "status": "error", "verdict": "", "exit-code": "4", "report-path": "", "files": "", "total": "0", "passed": "0",
        "failed": "0", "regressed": "0", "errors": "0", "skipped": "0", "weak": "0",
    }  # fmt: skip
    assert sorted(finish.report.parent.glob(f"{finish.report.stem}.*")) == [finish.report] * (
        text is not None
    )
    assert finish.summary.startswith("## cgins: no report\n")
    assert finish.run(1)["exit-code"] == "1"


@pytest.mark.parametrize(
    ("event", "label", "allowed"),
    [
        (
            '{"pull_request": {"labels": [{"name": "kernels"}, {"name": "cgins-weaker"}]}}',
            "cgins-weaker",
            True,
        ),
        ('{"pull_request": {"labels": [{"name": "cgins-weaker-not"}]}}', "cgins-weaker", False),
        ('{"pull_request": {"labels": [], "title": "cgins-weaker"}}', "cgins-weaker", False),
        ('{"pull_request": {"labels": [{"name": "cgins-weaker"}]}}', "", False),
        ('{"ref": "refs/heads/cgins-weaker"}', "cgins-weaker", False),
        ("[]", "cgins-weaker", False),
        ("", "cgins-weaker", False),
    ],
    ids=["labelled", "another", "a title", "no label wanted", "a push", "no object", "no document"],
)
def test_a_person_s_label_lets_weaker_settings_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, event: str, label: str, allowed: bool
) -> None:
    """The label as GitHub tells it of the pull request, and nothing that its author writes."""
    monkeypatch.syspath_prepend(str(ACTION))
    prepare, gate = import_module("prepare"), import_module("gate")
    (tmp_path / "event.json").write_text(event)
    environment = {"GITHUB_EVENT_PATH": str(tmp_path / "event.json"), "INPUT_WEAKER_LABEL": label}
    assert prepare._is_labelled(environment) == allowed
    step = dict.fromkeys(
        (
            "CGINS_BASELINE",
            "CGINS_STORE",
            "CGINS_STORE_USE",
            "INPUT_SEED",
            "INPUT_HISTORY",
            "INPUT_PYTEST_ARGS",
        ),
        "",
    )
    step |= dict.fromkeys(("INPUT_STRICT", "INPUT_TIMING", "INPUT_COMPILE_ONLY"), "")
    step |= {"CGINS_PYTHON": "python", "CGINS_REPORT": "r", "INPUT_DEVICE": "cpu"}
    words = gate.command({**step, "CGINS_ALLOW_WEAKER": str(allowed).lower()})
    assert ("--cgins-allow-weaker" in words) == allowed


@pytest.mark.parametrize(
    ("event", "ref", "words"),
    [
        ("push", "refs/heads/main", ["--cgins-store=s3://b/f", "--cgins-store-write=s3://b/f"]),
        ("schedule", "refs/heads/main", ["--cgins-store-write=s3://b/f"]),
        ("push", "refs/heads/faster", ["--cgins-store=s3://b/f"]),
        ("push", "refs/tags/main", ["--cgins-store=s3://b/f"]),
        ("pull_request", "refs/pull/7/merge", ["--cgins-store=s3://b/f"]),
        ("pull_request", "refs/heads/main", ["--cgins-store=s3://b/f"]),
        ("workflow_dispatch", "refs/heads/main", ["--cgins-store=s3://b/f"]),
    ],
)
def test_only_runs_of_the_default_branch_keep_verdicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, event: str, ref: str, words: list[str]
) -> None:
    """Others take them; nightly runs take none, since theirs are to be new."""
    monkeypatch.syspath_prepend(str(ACTION))
    prepare, gate = import_module("prepare"), import_module("gate")
    (tmp_path / "event.json").write_text('{"repository": {"default_branch": "main"}}')
    environment = {
        "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
        "GITHUB_EVENT_NAME": event,
        "GITHUB_REF": ref,
    }
    names = (
        "CGINS_BASELINE",
        "INPUT_SEED",
        "INPUT_HISTORY",
        "INPUT_PYTEST_ARGS",
        "INPUT_STRICT",
        "INPUT_TIMING",
    )
    step = dict.fromkeys((*names, "INPUT_COMPILE_ONLY", "CGINS_ALLOW_WEAKER"), "")
    step |= {"CGINS_PYTHON": "python", "CGINS_REPORT": "r", "INPUT_DEVICE": "cpu", "CGINS_STORE": "s3://b/f"}
    step["CGINS_STORE_USE"] = prepare._store_use(environment)
    assert [word for word in gate.command(step) if "store" in word] == words
