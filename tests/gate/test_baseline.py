"""Cases that the base revision has and the working tree has no longer."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import pytest_cgins
from pytest_cgins.building.revision.merge_base import MERGE_BASE, NONE, TARGETS
from pytest_cgins.gate import baseline
from pytest_cgins.gate.baseline import BaseComparison, held_against

TEXT = """\
version: 1
traces: [traces/one, traces/two]
kernels:
  relu:
    op: torch.nn.functional.relu
    implementations:
      - {name: cpp, device: cpu, source: relu.cpp}
      - {name: cuda, device: cuda, source: relu.cu}
  gelu: {op: torch.nn.functional.gelu, source: gelu.cpp}
"""


def git(folder: Path, *words: str) -> str:
    settings = ["-c", "user.name=T", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false"]
    settings += ["-c", "protocol.file.allow=always"]
    done = subprocess.run(["git", *settings, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(folder: Path) -> str:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "as it is")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pack `one` has two calls of relu and one of gelu, pack `two` one of relu."""
    folder = tmp_path_factory.mktemp("packs")
    ops = ["torch.nn.functional.relu", "torch.nn.functional.gelu"]
    with pytest_cgins.record(folder / "one", ops=ops):
        torch.nn.functional.relu(torch.ones(2, 3))
        torch.nn.functional.relu(torch.ones(4, 8))
        torch.nn.functional.gelu(torch.ones(5))
    with pytest_cgins.record(folder / "two", ops=ops[:1]):
        torch.nn.functional.relu(torch.ones(7))
    return folder


@pytest.fixture
def file(packs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`project/cgins.yaml` of a repository whose only commit has it and its packs."""
    for name in TARGETS:
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "repository" / "project"
    shutil.copytree(packs, folder / "traces")
    (folder / "cgins.yaml").write_text(TEXT)
    git(folder.parent, "init", "-q", "-b", "main")
    commit(folder.parent)
    return folder / "cgins.yaml"


def names(held: BaseComparison) -> list[str]:
    """Missing cases without the digests in their signatures."""
    return [name.rpartition("-")[0] for _, name in held.missing]


def drop_traces(pack: Path, op: str) -> None:
    """Take an op's traces out of a manifest."""
    manifest = json.loads((pack / "manifest.json").read_text())
    manifest["traces"] = [trace for trace in manifest["traces"] if trace["call"]["op"] != op]
    (pack / "manifest.json").write_text(json.dumps(manifest))


def test_nothing_is_missing_where_nothing_changed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files as they are at the base revision are compared by git alone: nothing is written or parsed again."""
    monkeypatch.setattr(baseline, "Checkout", None)
    commit_id = git(file.parent, "rev-parse", "HEAD")
    assert held_against(MERGE_BASE, [file]) == BaseComparison(base=f"{commit_id[:10]} (merge-base with main)")


def test_what_is_gone_is_named(file: Path) -> None:
    """A removed kernel, a removed implementation, a pack that is no longer listed, traces that were dropped."""
    file.write_text(TEXT.replace("  gelu:", "  # gelu:"))
    assert names(held_against(MERGE_BASE, [file])) == ["gelu/cpu-cpp/one/f32-5"]
    file.write_text(TEXT.replace("      - {name: cuda", "      # - {name: cuda"))
    both = ["relu/cuda/one/f32-2x3", "relu/cuda/one/f32-4x8", "relu/cuda/two/f32-7"]
    assert names(held_against(MERGE_BASE, [file])) == both
    file.write_text(TEXT.replace(", traces/two", ""))
    assert names(held_against(MERGE_BASE, [file])) == ["relu/cpu-cpp/two/f32-7", "relu/cuda/two/f32-7"]
    file.write_text(TEXT)
    assert held_against(MERGE_BASE, [file]).missing == ()
    drop_traces(file.parent / "traces" / "one", "torch.nn.functional.relu")
    assert names(held_against(MERGE_BASE, [file], device="cpu")) == [
        "relu/cpu-cpp/one/f32-2x3",
        "relu/cpu-cpp/one/f32-4x8",
    ]


def test_cases_of_another_device_are_not_compared(file: Path) -> None:
    """What --cgins-device leaves out is not missing."""
    file.write_text(TEXT.replace("      - {name: cuda", "      # - {name: cuda"))
    assert held_against(MERGE_BASE, [file], device="cpu").missing == ()
    assert len(held_against(MERGE_BASE, [file], device="cuda").missing) == 3


def test_more_cases_and_new_files_are_not_missing(file: Path) -> None:
    """Another kernel, another name of the file's folder for it, and a file that the base does not have."""
    file.write_text(TEXT + "  again: {op: torch.nn.functional.relu, source: relu.cpp}\n")
    other = file.parents[1] / "other" / "cgins.yaml"
    shutil.copytree(file.parent, other.parent)
    held = held_against(MERGE_BASE, [file, other])
    assert (held.missing, held.note) == ((), "")


def test_a_file_that_is_gone_is_missing_whole(file: Path) -> None:
    """Without its cgins.yaml a folder has no cases, unless a new file elsewhere has them; only searched folders count."""
    top = file.parents[1]
    file.unlink()
    held = held_against(MERGE_BASE, [], folders=[top])
    assert {path for path, _ in held.missing} == {file}
    assert len(held.missing) == 7
    (top / "elsewhere").mkdir()
    assert held_against(MERGE_BASE, [], folders=[top / "elsewhere"]).missing == ()
    file.parent.rename(top / "moved")
    (top / "moved" / "cgins.yaml").write_text(TEXT)
    assert held_against(MERGE_BASE, [top / "moved" / "cgins.yaml"], folders=[top]).missing == ()


def test_a_branch_is_held_against_where_it_began(file: Path) -> None:
    """Commits of the branch do not hide what they removed."""
    git(file.parent, "checkout", "-q", "-b", "topic")
    file.write_text(TEXT.replace("  gelu:", "  # gelu:"))
    commit(file.parents[1])
    assert names(held_against(MERGE_BASE, [file])) == ["gelu/cpu-cpp/one/f32-5"]
    assert held_against("HEAD", [file]).missing == ()


def test_a_pack_that_git_does_not_have_is_the_same_on_both_sides(file: Path) -> None:
    """Packs in a cache or in another folder are taken as they are; the kernels are compared all the same."""
    git(file.parent, "rm", "-r", "-q", "--cached", "traces")
    (file.parent / ".gitignore").write_text("traces\n")
    commit(file.parents[1])
    file.write_text(TEXT.replace("  gelu:", "  # gelu:"))
    held = held_against(MERGE_BASE, [file])
    assert (names(held), held.note) == (["gelu/cpu-cpp/one/f32-5"], "")


def test_a_shallow_clone_names_the_remedy(file: Path, tmp_path: Path) -> None:
    """A base that the clone does not have is a note with what to write into the workflow."""
    git(file.parent, "checkout", "-q", "-b", "topic")
    top = file.parents[1]
    (top / "more").write_text("more")
    commit(top)
    git(top, "checkout", "-q", "main")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth", "1", "--branch", "topic", top.as_uri(), str(clone))
    held = held_against(MERGE_BASE, [clone / "project" / "cgins.yaml"])
    assert (held.missing, held.base) == ((), "")
    assert (
        "the clone is shallow: fetch its history (git fetch --unshallow; actions/checkout with fetch-depth: 0)"
        in held.note
    )


def test_what_cannot_be_compared_is_told(file: Path, tmp_path: Path) -> None:
    """No repository, no baseline wanted, a base that this version cannot read: a note, and nothing is missing."""
    outside = Path(shutil.copytree(file.parent, tmp_path / "outside")) / "cgins.yaml"
    assert held_against(MERGE_BASE, [outside]) == BaseComparison(
        note=f"{outside.parent} is in no git repository", unread=True
    )
    assert held_against(NONE, [file]) == BaseComparison(note="--cgins-baseline=none")
    file.write_text("version: 1\nwrong: 1\n")
    commit(file.parents[1])
    file.write_text(TEXT)
    held = held_against(MERGE_BASE, [file])
    assert (held.missing, held.unread) == ((), True)
    assert "cgins.yaml at " in held.note
    assert 'unknown key "wrong"' in held.note


def test_attributes_do_not_hide_a_pack_that_was_dropped(file: Path) -> None:
    """The base's manifests and cgins.yaml are read as git has them, not as the head's attributes would convert them."""
    (file.parents[1] / ".gitattributes").write_text(
        "*.json working-tree-encoding=UTF-16\ncgins.yaml working-tree-encoding=UTF-32\n"
    )
    file.write_text(TEXT.replace(", traces/two", ""))
    held = held_against(MERGE_BASE, [file])
    assert (names(held), held.unread) == (["relu/cpu-cpp/two/f32-7", "relu/cuda/two/f32-7"], False)


def test_a_manifest_that_is_elsewhere_is_told(file: Path) -> None:
    """A pointer of Git LFS is no manifest: the base is not read, and what fetches it is said."""
    manifest = file.parent / "traces" / "one" / "manifest.json"
    manifest.write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 4\n")
    commit(file.parents[1])
    file.write_text(TEXT.replace("[traces/one, traces/two]", "[traces/two]").replace("  gelu:", "  # gelu:"))
    held = held_against(MERGE_BASE, [file])
    assert (held.missing, held.unread) == ((), True)
    assert "manifest.json at" in held.note
    assert "is a pointer of Git LFS" in held.note


def test_settings_that_are_weaker_are_named(file: Path) -> None:
    """Of the file, also where it was moved; what is new in it, or stricter, is not among them."""
    weak = TEXT.replace(
        "op: torch.nn.functional.gelu,", "op: torch.nn.functional.gelu, tolerance: {rtol: 1},"
    )
    file.write_text(weak + "  new: {op: torch.nn.functional.relu, source: relu.cpp, tolerance: {rtol: 1}}\n")
    said = ("gelu: tolerance.kind derived → explicit", "gelu: tolerance.rtol 0.0 → 1.0")
    assert held_against(MERGE_BASE, [file]).weaker == tuple(f"project/cgins.yaml: {line}" for line in said)
    moved = file.parents[1] / "moved" / "cgins.yaml"
    file.write_text(weak)
    file.parent.rename(moved.parent)
    held = held_against(MERGE_BASE, [moved], folders=[file.parents[1]])
    assert (held.missing, held.weaker) == ((), tuple(f"moved/cgins.yaml: {line}" for line in said))
    commit(moved.parents[1])
    moved.write_text(TEXT)
    assert held_against("HEAD", [moved]).weaker == ()


def test_pipelines_and_pytest_s_settings_are_named(file: Path) -> None:
    """A pipeline that starts the gate, and what decides what pytest collects, in the file's folder and around it."""
    top = file.parents[1]
    texts = {
        ".github/workflows/gate.yml": "run: pytest --cgins\n",
        ".github/workflows/lint.yml": "run: ruff\n",
        ".gitlab-ci.yml": "script: pytest --cgins\n",
        "pyproject.toml": '[project]\nname = "it"\n[tool.pytest.ini_options]\naddopts = "-q"\nmarkers = ["a"]\n',
        "project/setup.cfg": "[tool:pytest]\ntestpaths = tests\n",
        "beside/pytest.ini": "[pytest]\naddopts = -q\n",
    }
    for name, text in texts.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    commit(top)
    assert held_against(MERGE_BASE, [file]).weaker == ()
    for name in (".github/workflows/gate.yml", ".github/workflows/lint.yml"):
        (top / name).write_text("run: 'true'\n")
    (top / ".gitlab-ci.yml").unlink()
    (top / "pyproject.toml").write_text(
        texts["pyproject.toml"].replace("-q", "-q --cgins-allow-fewer").replace('"a"', '"b"')
    )
    (top / "project/setup.cfg").write_text("[metadata]\nname = it\n")
    (top / "project/pytest.ini").write_text("[pytest]\nnorecursedirs = project\n")
    git(top, "add", "-A")
    (top / "beside/pytest.ini").write_text("[pytest]\naddopts = -x\n")
    assert sorted(held_against("HEAD", [file]).weaker) == [
        ".github/workflows/gate.yml: the pipeline that starts the gate was changed",
        ".gitlab-ci.yml: the pipeline that starts the gate was removed",
        "project/pytest.ini: norecursedirs none → project",
        "project/setup.cfg: testpaths tests → none",
        "pyproject.toml: addopts -q → -q --cgins-allow-fewer",
    ]
