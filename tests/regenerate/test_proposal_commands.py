"""`cgins proposal show`, `verify` and `apply`, in repositories made for it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from pytest_cgins.app import cli
from pytest_cgins.core import documents
from pytest_cgins.core.session_report import SessionReport
from pytest_cgins.regenerate import proposal
from pytest_cgins.run.sandbox.sandbox import Sandbox
from tests.evaluations import make_evaluation
from tests.forked_python import gate_python
from tests.regenerate import proposals
from tests.regenerate.proposals import NEW, OLD, PATH, YAML

ALONE = """\
version: 1
traces: [traces/tiny]
kernels:
  relu: {op: torch.nn.functional.relu, implementations: [{name: right, device: cpu, source: kernels/relu.cpp}]}
"""
"""An acceptance looks at all kernels that there are."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository at the base of a proposal in `../p`; commands run in it."""
    commit = proposals.project(tmp_path / "project")
    proposals.write(tmp_path / "p", base_commit=commit)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def test_show(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Title, facts, what was wrong, cases, the whole patch and the command."""
    assert cli.main(["proposal", "show", "../p"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Repair scale (cpp on cpu)\n")
    for said in (
        "was scale/cpu-cpp",
        "2 elements wrong",
        "INCORRECT",
        "PASSED",
        "+  return 2;",
        "again  pytest",
    ):
        assert said in out


def test_show_json(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The checked document, which its schema describes."""
    assert cli.main(["proposal", "show", "--json", "../p"]) == 0
    document = capsys.readouterr().out
    assert documents.load(proposal.Proposal, document) == proposal.read(Path("../p")).proposal


def test_show_refuses_what_is_damaged(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An error and exit 2; nothing of it is printed."""
    Path("../p/more").touch()
    assert cli.main(["proposal", "show", "../p"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "p: more: does not belong into a proposal" in told.err


def test_verify(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each check is told, and what was not checked."""
    assert cli.main(["proposal", "verify", "../p"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ok    in order: 1 file, digests, patch and evidence agree",
        "ok    changes scale-cpu-cpp alone, by cgins.yaml",
        "ok    fits the working tree",
        "ok    git apply takes the patch",
        "note  no kernel was run: that it is right and fast is known from evidence.json only; --gate runs the gate",
    ]


def test_verify_from_below_and_elsewhere(
    place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Paths start at the repository's top, wherever the command runs; `--root` names it from outside."""
    monkeypatch.chdir(place / "kernels")
    assert cli.main(["proposal", "verify", str(tmp_path / "p")]) == 0
    monkeypatch.chdir(tmp_path)
    assert cli.main(["proposal", "verify", "p", "--root", "project/kernels"]) == 0


def test_verify_tells_a_changed_tree(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that was edited meanwhile: exit 1."""
    (place / PATH).write_text("edited\n")
    assert cli.main(["proposal", "verify", "../p"]) == 1
    assert (
        f"FAIL  {PATH} in the working tree is not what the proposal was made for" in capsys.readouterr().out
    )


def test_verify_tells_what_is_damaged(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A proposal that does not hold is exit 1; one that is not there is an error."""
    Path("../p/report.md").write_text("forged")
    assert cli.main(["proposal", "verify", "../p"]) == 1
    assert "FAIL  report.md: its sha256 is not" in capsys.readouterr().out
    assert cli.main(["proposal", "verify", "../nowhere"]) == 2


def test_verify_tells_a_forged_report(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A report with a right digest that says other than the evidence is not believed."""
    Path("../p/report.md").write_text("all is well")
    digest = hashlib.sha256(b"all is well").hexdigest()
    proposals.forge(Path("../p"), lambda data: data.update(report_digest=digest))
    assert cli.main(["proposal", "verify", "../p"]) == 0
    assert "note  report.md differs from what this version writes" in capsys.readouterr().out


def test_only_own_sources(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that `cgins.yaml` of the working tree does not give to the kernel is refused by verify and apply."""
    new = {PATH: NEW, "kernels/other.cpp": "x\n"}
    proposals.write(Path("../p"), new=new)
    assert cli.main(["proposal", "verify", "../p"]) == 1
    assert (
        "FAIL  kernels/other.cpp: is not a source of scale-cpu-cpp, by cgins.yaml" in capsys.readouterr().out
    )
    assert cli.main(["proposal", "apply", "../p"]) == 2
    assert not (place / "kernels/other.cpp").exists()
    assert (place / PATH).read_text() == OLD


def test_apply(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The files are written, with their modes; a second time there is nothing to do; nothing is committed."""
    (place / PATH).chmod(0o755)
    assert cli.main(["proposal", "apply", "../p"]) == 0
    assert (place / PATH).read_text() == NEW
    assert (place / PATH).stat().st_mode & 0o777 == 0o755
    assert capsys.readouterr().out == (
        f"wrote {PATH}\nnext: git diff, then pytest --cgins cgins.yaml -k scale\n"
    )
    assert cli.main(["proposal", "apply", "../p"]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert cli.main(["proposal", "verify", "../p"]) == 0
    assert "ok    is in the working tree already" in capsys.readouterr().out
    assert [entry.name for entry in (place / "kernels").iterdir()] == ["scale.cpp"]


def test_apply_refuses_a_changed_tree(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody's edit is not overwritten: exit 1, and the file is as it was."""
    (place / PATH).write_text("edited\n")
    assert cli.main(["proposal", "apply", "../p"]) == 1
    assert f"changed since the proposal was made: {PATH}; nothing is written" in capsys.readouterr().err
    assert (place / PATH).read_text() == "edited\n"


@pytest.mark.parametrize("what", ["file", "folder"])
def test_apply_follows_no_link(
    place: Path, tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A link in the working tree that leads elsewhere is not written through."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "scale.cpp").write_text(OLD)
    shutil.rmtree(place / "kernels")
    if what == "folder":
        (place / "kernels").symlink_to(elsewhere)
    else:
        (place / "kernels").mkdir()
        (place / PATH).symlink_to(elsewhere / "scale.cpp")
    assert cli.main(["proposal", "apply", "../p"]) == 2
    assert "a part of it is a symbolic link" in capsys.readouterr().err
    assert (elsewhere / "scale.cpp").read_text() == OLD


def test_apply_a_new_kernel_without_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project in no repository: paths start at `--root`; folders are made."""
    root = tmp_path / "plain"
    root.mkdir()
    (root / "cgins.yaml").write_text(YAML)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    entry = "      - {name: fast, device: cpu, source: new/place/fast.cpp}\n"
    proposals.write(
        tmp_path / "p",
        target=proposals.target(implementation="fast", goal="generate"),
        goal="generate",
        base={"cgins.yaml": YAML},
        new={"cgins.yaml": YAML + entry, "new/place/fast.cpp": NEW},
        before=[],
        after=proposals.accepted(make_evaluation(implementation="fast")),
    )
    assert cli.main(["proposal", "verify", str(tmp_path / "p"), "--root", str(root)]) == 0
    assert cli.main(["proposal", "apply", str(tmp_path / "p"), "--root", str(root)]) == 0
    assert (root / "new/place/fast.cpp").read_text() == NEW
    assert (root / "cgins.yaml").read_text() == YAML + entry


@pytest.mark.parametrize("eol", ["lf", "crlf"])
def test_files_with_line_ends_of_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eol: str) -> None:
    """What a checkout made CRLF of stays so, and git takes the patch."""
    old, new = OLD.replace("\n", "\r\n"), NEW.replace("\n", "\r\n")
    attributes = {".gitattributes": f"*.cpp text eol={eol}\n" if eol == "crlf" else ""}
    proposals.project(tmp_path / "project", {PATH: old, **attributes})
    proposals.write(tmp_path / "p", base={PATH: old}, new={PATH: new})
    monkeypatch.chdir(tmp_path / "project")
    assert cli.main(["proposal", "verify", "../p"]) == 0
    assert cli.main(["proposal", "apply", "../p"]) == 0
    assert (tmp_path / "project" / PATH).read_bytes() == new.encode()


# ---- the gate, for real


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, recorded: Path) -> Path:
    """A repository with a kernel that is wrong, and its traces outside of git."""
    folder = tmp_path_factory.mktemp("tiny") / "project"
    shutil.copytree(recorded, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / ".gitignore").write_text("/traces/\n__pycache__/\n")
    wrong = (folder / "kernels/relu.cpp").read_text().replace("x[i] < 0 ? 0 : x[i]", "x[i]")
    right = (folder / "kernels/relu.cpp").read_text()
    (folder / "right.txt").write_text(right)
    proposals.project(folder, {"kernels/relu.cpp": wrong, "cgins.yaml": ALONE})
    return folder


@pytest.mark.parametrize(
    ("present", "said"),
    [("kernels/Fast.cpp", '"fast.cpp" is "Fast.cpp" in the'), ("New/x.txt", '"new" is "New" in the')],
)
def test_only_names_that_differ_in_more_than_case(
    place: Path, capsys: pytest.CaptureFixture[str], present: str, said: str
) -> None:
    """A new file that would replace one of the working tree, or lie in another folder, where case is nothing."""
    path = "new/fast.cpp" if present.startswith("New") else "kernels/fast.cpp"
    (place / present).parent.mkdir(exist_ok=True)
    (place / present).write_text("somebody's\n")
    added = f"      - {{name: fast, device: cpu, source: {path}}}\n"
    proposals.write(
        Path("../p"), target=proposals.target(implementation="fast", goal="generate"), goal="generate",
        base={"cgins.yaml": YAML}, new={"cgins.yaml": YAML + added, path: NEW}, before=[],
        after=proposals.accepted(make_evaluation(implementation="fast")),
    )  # fmt: skip
    assert cli.main(["proposal", "apply", "../p"]) == 2
    assert said in capsys.readouterr().err
    assert (place / "cgins.yaml").read_text() == YAML
    (place / present).unlink()
    if path.startswith("new"):
        (place / "New").rmdir()
    assert cli.main(["proposal", "apply", "../p"]) == 0
    assert cli.main(["proposal", "verify", "../p"]) == 0


def gated(folder: Path) -> SessionReport:
    """The gate's report on the kernel `relu/right`."""
    report = folder.parent / "report.json"
    command = ["-m", "pytest", "-p", "pytest_cgins.plugin", "--cgins", "--cgins-seed=5"]
    options = ["--cgins-no-timing", f"--cgins-json={report}", "-k", "right", "-q"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    gate_python().run([*command, *options], cwd=folder, env=environment)
    return documents.load(SessionReport, report.read_bytes())


@pytest.mark.skipif(bool(Sandbox().available()), reason="this host gives no sandbox")
@pytest.mark.parametrize("honest", [True, pytest.param(False, marks=pytest.mark.exam)])
def test_gate_tells_an_honest_proposal_from_a_forged_one(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], honest: bool
) -> None:
    """With `--gate` the kernel is run, in a copy: evidence that was made up is found out; the project is untouched."""
    path = "kernels/relu.cpp"
    wrong, right = (tiny / path).read_text(), (tiny / "right.txt").read_text()
    shutil.copytree(tiny, tmp_path / "fixed")
    (tmp_path / "fixed" / path).write_text(right)
    after = gated(tmp_path / "fixed")
    assert [one.verdict.status.outcome for one in after.evaluations] == ["pass", "pass"]
    proposals.write(
        tmp_path / "p",
        target=proposals.target(kernel="relu", implementation="right", op="torch.nn.functional.relu"),
        base={path: wrong},
        new={path: right if honest else f"// as it was\n{wrong}"},
        before=[],
        after=after,
        base_commit=proposals.git(tiny, "rev-parse", "HEAD"),
    )
    code = cli.main(["proposal", "verify", "--gate", str(tmp_path / "p"), "--root", str(tiny)])
    out = capsys.readouterr().out
    assert code == (0 if honest else 1), out
    lines = [line for line in out.splitlines() if "relu/cpu-right" in line]
    assert len(lines) == 2
    assert all(line.startswith("ok  " if honest else "FAIL  relu") for line in lines), out
    assert json.loads((tmp_path / "p" / "evidence.json").read_text())["seed"] == 5
    assert (tiny / path).read_text() == wrong
    assert proposals.git(tiny, "status", "--porcelain") == ""
