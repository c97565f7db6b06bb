"""Proposals that somebody made to do harm, or that were damaged: each ends in an error that names the file."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_cgins.core.errors import ProposalError
from pytest_cgins.core.verdict import Status
from pytest_cgins.regenerate import proposal
from pytest_cgins.regenerate.proposal import paths as proposal_paths
from tests.regenerate import proposals
from tests.regenerate.proposals import NEW, OLD, PATH


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A proposal that is in order."""
    proposals.write(tmp_path / "p")
    return tmp_path / "p"


def refused(folder: Path) -> str:
    with pytest.raises(ProposalError) as error:
        proposal.read(folder)
    assert error.value.remedy
    assert str(error.value).isascii() or "→" in str(error.value)
    return error.value.what


# ---- files of the folder


def test_symbolic_link_among_the_files(folder: Path, tmp_path: Path) -> None:
    """A link is not followed, even to the very content."""
    (tmp_path / "secret").write_text(NEW)
    (folder / "files" / PATH).unlink()
    (folder / "files" / PATH).symlink_to(tmp_path / "secret")
    assert "files/kernels/scale.cpp: is a symbolic link" in refused(folder)


@pytest.mark.parametrize("name", ["proposal.json", "patch.diff", "evidence.json", "report.md"])
def test_symbolic_link_instead_of_a_document(folder: Path, tmp_path: Path, name: str) -> None:
    """The same for each document."""
    (folder / name).rename(tmp_path / name)
    (folder / name).symlink_to(tmp_path / name)
    assert f"{name}: is a symbolic link" in refused(folder)


def test_symbolic_link_instead_of_a_folder(folder: Path, tmp_path: Path) -> None:
    """Nor is a folder on the way a link."""
    (folder / "files" / "kernels").rename(tmp_path / "kernels")
    (folder / "files" / "kernels").symlink_to(tmp_path / "kernels")
    assert "files/kernels: is a symbolic link" in refused(folder)


def test_pipe_instead_of_a_file(folder: Path) -> None:
    """Nobody waits for a writer."""
    (folder / "report.md").unlink()
    os.mkfifo(folder / "report.md")
    assert "report.md: is not a regular file" in refused(folder)


@pytest.mark.parametrize(
    "extra", ["more.txt", ".hidden", "files/kernels/other.cpp", "files/.github/x.yml", "files/empty/"]
)
def test_further_files(folder: Path, extra: str) -> None:
    """A proposal has its files and no others, and no folder that is not needed."""
    place = folder / extra
    if extra.endswith("/"):
        place.mkdir()
    else:
        place.parent.mkdir(exist_ok=True)
        place.write_text("x")
    assert "does not belong into a proposal" in refused(folder)


@pytest.mark.parametrize(
    "name", ["proposal.json", "patch.diff", "evidence.json", "report.md", f"files/{PATH}"]
)
def test_missing_files(folder: Path, name: str) -> None:
    """What is missing is named."""
    (folder / name).unlink()
    assert f"{name}: is not there" in refused(folder)


def test_no_folder(tmp_path: Path) -> None:
    """The remedy says what a proposal is."""
    with pytest.raises(ProposalError, match="No such file") as error:
        proposal.read(tmp_path / "nowhere")
    assert "proposal.json" in error.value.remedy


@pytest.mark.parametrize(
    ("name", "nbytes"),
    [(f"files/{PATH}", 2**18 + 1), ("proposal.json", 2**22 + 1), ("evidence.json", 2**26 + 1)],
)
def test_oversized_files_are_not_read(folder: Path, name: str, nbytes: int) -> None:
    """Their size alone refuses them: a sparse file costs nothing."""
    os.truncate(folder / name, nbytes)
    assert f"{name}: has {nbytes} bytes; at most" in refused(folder)


@pytest.mark.parametrize("name", ["patch.diff", "evidence.json", "report.md", f"files/{PATH}"])
def test_wrong_digest(folder: Path, name: str) -> None:
    """One byte more, and the digest is another."""
    with (folder / name).open("ab") as file:
        file.write(b"\n")
    assert f"{name}: its sha256 is not" in refused(folder)


# ---- paths


@pytest.mark.parametrize(
    "path",
    [
        "../x.cpp", "kernels/../../x.cpp", "./x.cpp", "/etc/x.cpp", "kernels//x.cpp", "",
        ".github/workflows/x.yml", ".github/x.py", ".GitHub/x.py", "a/.git/hooks/x.py", ".GIT/x.py",
        "git~1/x.py", ".g\u200cit/x.py", "\uff0egit/x.py", "ke\u0301rnel/x.py", "kernels\\x.cpp",
        "kernels/x.cpp ", "kernels./x.cpp", "kernels/x\n.cpp", "kernels/x.cpp\0.md", "-x.cpp",
        "cgins.yaml", "CGINS.yaml", "conftest.py", "kernels/Conftest.py", "setup.py", "test_x.py",
        "sitecustomize.py", "json.py", "pyproject.toml", "kernels/x.so", "Makefile", "x" * 241 + ".cpp",
    ],
)  # fmt: skip
def test_paths_that_nothing_may_change(folder: Path, path: str) -> None:
    """The path alone is refused, whatever lies in the folder."""

    def change(data: dict[str, Any]) -> None:
        for one in ("files", "base_digests"):
            data[one] = {path: data[one][PATH]}

    proposals.forge(folder, change)
    assert refused(folder).startswith(proposal_paths.quoted(path))


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        (["k/a.cpp", "K/a.cpp"], "one file where upper and lower case are the same"),
        (["k.py", "k.py/a.cpp"], "is a file, and the folder of"),
    ],
)
def test_paths_that_exclude_each_other(paths: list[str], said: str) -> None:
    """What is two files in git may be one on a disk, or none."""
    with pytest.raises(ProposalError, match=said):
        proposal_paths.check_paths(paths, goal="repair", config="cgins.yaml")


@pytest.mark.parametrize(
    "path", ["k/a b.cpp", "k-1/x_y+z.cuh", "json/types.hpp", "kernels/copy.py", "a.b/c.d.cu"]
)
def test_plain_paths_are_allowed(path: str) -> None:
    """Blanks, dots and signs of ordinary names; a module in a package may be called as one of Python's."""
    proposal_paths.check_path(path, goal="repair")


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=30))
def test_allowed_paths_are_plain(path: str) -> None:
    """Whatever is allowed stays below the top, is ASCII and not hidden."""
    try:
        proposal_paths.check_path(f"{path}.cpp", goal="repair")
    except ProposalError:
        return
    assert path.isascii()
    assert path.isprintable()
    assert not path.startswith("/")
    assert all(not part.startswith(".") and part for part in f"{path}.cpp".split("/"))


# ---- the patch


def test_patch_that_changes_another_file(folder: Path) -> None:
    """The patch is what git will apply: it must say what `files` says."""
    patch = (folder / "patch.diff").read_bytes()
    other = b"diff --git a/.github/x.yml b/.github/x.yml\nnew file mode 100644\n--- /dev/null\n+++ b/.github/x.yml\n@@ -0,0 +1 @@\n+x\n"
    proposals.forge_patch(folder, patch + other)
    assert refused(folder).startswith("patch.diff:9: has more than the files")
    proposals.forge_patch(folder, other + patch)
    assert refused(folder).startswith("patch.diff:1: has no line")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"+  return 2;", b"+  return 3;"),
        (b"-  return 1;", b"-  return 9;"),
        (b"--- a/kernels/scale.cpp", b"--- a/kernels/other.cpp"),
        (b"+++ b/kernels/scale.cpp", b"+++ b/../../x"),
        (b"--- a/", b"old mode 100644\nnew mode 100755\n--- a/"),
        (b"--- a/", b"rename from x\nrename to y\n--- a/"),
        (b"--- a/", b"new file mode 120000\n--- a/"),
        (b"--- a/", b"index 1234567..89abcde 160000\n--- a/"),
        (b"@@ -1,3 +1,3 @@", b"@@ -2,3 +2,3 @@"),
        (b"@@ -1,3 +1,3 @@", b"@@ -1,9 +1,9 @@"),
        (b"@@ -1,3 +1,3 @@", b"GIT binary patch\nliteral 3"),
        (b"@@ -1,3 +1,3 @@", b"@@ -1,3 +1,3 @@ function"),
        (b" }\n", b" }"),
        (b" }\n", b" }\n-- \n2.39\n"),
        (b" }\n", b" }\r\n"),
    ],
)
def test_patch_that_says_otherwise(folder: Path, old: bytes, new: bytes) -> None:
    """Other lines, other names, modes, renames, submodules, binary parts, mail's endings."""
    patch = (folder / "patch.diff").read_bytes()
    assert old in patch
    proposals.forge_patch(folder, patch.replace(old, new))
    assert refused(folder).startswith("patch.diff")


def test_patch_of_another_base(folder: Path) -> None:
    """The old content that the patch leads back to has the digest of the base."""
    proposals.forge(folder, lambda data: data["base_digests"].update({PATH: "0" * 64}))
    assert refused(folder) == f"patch.diff: what it makes of {PATH} does not start from the base's file"


def test_file_that_the_patch_does_not_have(folder: Path) -> None:
    """A further file with right digests is still not in the patch."""
    proposals.forge_file(folder, "kernels/more.cpp", b"x\n")
    assert refused(folder).startswith("patch.diff:1: has no line 'diff --git a/kernels/more.cpp")


def test_file_of_an_existing_one_made_new(folder: Path) -> None:
    """A change cannot be passed off as a new file."""
    proposals.forge(folder, lambda data: data["base_digests"].update({PATH: ""}))
    assert refused(folder).startswith("patch.diff:2: has no line 'new file mode 100644'")


def test_hostile_patch_takes_no_time(folder: Path) -> None:
    """A patch of many lines that are alike, on which a comparison of texts would work for minutes."""
    content = b"".join(b"%d\n" % (index % 90) for index in range(70_000))
    patch = b"diff --git a/%b b/%b\nnew file mode 100644\n--- /dev/null\n+++ b/%b\n@@ -0,0 +1,70000 @@\n"
    name = PATH.encode()
    (folder / "files" / PATH).write_bytes(content)
    text = patch % (name, name, name) + b"".join(b"+" + line for line in content.splitlines(keepends=True))

    def change(data: dict[str, Any]) -> None:
        data["files"][PATH] = hashlib.sha256(content).hexdigest()
        data["base_digests"][PATH] = ""

    proposals.forge(folder, change)
    proposals.forge_patch(folder, text)
    started = time.monotonic()
    assert proposal.read(folder).base == {}
    assert time.monotonic() - started < 5


# ---- documents


def _consistent(data: dict[str, Any], **changes: Any) -> None:
    """Other fields, with the command that follows from them."""
    data.update(changes)
    command = (
        f"pytest --cgins --cgins-seed={data['held_out_seed']} --cgins-device=cpu -k scale --cgins-sandbox=on"
    )
    data["command"] = f"{command} {data['config']}"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data.update(extra=1), "extra: Unexpected keyword argument"),
        (lambda data: data.pop("goal"), "goal: Field required"),
        (lambda data: data.update(sandbox=1), "sandbox: Input should be a valid boolean"),
        (lambda data: data.update(version=2), "has version 2; this pytest-cgins reads 1"),
        (lambda data: data.update(title="Fixes #1 @all"), "title: is not 'Repair scale (cpp on cpu)'"),
        (lambda data: data.update(id="other/thing"), "id: is not that of the run and the target"),
        (lambda data: data.update(run_id="../x", id="../x/scale-cpu-cpp"), "id: is not"),
        (
            lambda data: data.update(files={}, base_digests={}),
            "files: are not those of base_digests, or none",
        ),
        (lambda data: data["base_digests"].update({"k/x.cpp": ""}), "files: are not those of base_digests"),
        (lambda data: data.update(patch_digest="A" * 64), "digests: one is not a sha256"),
        (lambda data: data.update(base_commit="HEAD; rm -rf"), "base_commit: is not a commit"),
        (lambda data: _consistent(data, config="x.toml"), "config: names no cgins.yaml"),
        (lambda data: _consistent(data, config="../cgins.yaml"), "paths are relative"),
        (lambda data: _consistent(data, held_out_seed=1), "held_out_seed: is not that of evidence.json"),
        (
            lambda data: data.update(command="pip install evil && pytest --cgins"),
            "command: is not 'pytest --cgins --cgins-seed=77 --cgins-device=cpu -k scale --cgins-sandbox=on cgins.yaml'",
        ),
        (lambda data: data.update(command=data["command"].replace("77", "78")), "command: is not"),
        (lambda data: data.update(sandbox=False), "command: is not 'pytest --cgins"),
        (lambda data: data.update(environments=[]), "environments: is not that of evidence.json"),
        (lambda data: data["target"].update(kernel="a/../b"), "target: a name has letters"),
        (lambda data: data["target"].update(kernel="other"), "title: is not"),
    ],
)
def test_forged_description(folder: Path, change: Callable[[dict[str, Any]], object], said: str) -> None:
    """Each field is held against its type and against the rest."""

    def changed(data: dict[str, Any]) -> None:
        change(data)
        if said == "title: is not":
            data["id"] = "run-1/other-cpu-cpp"

    proposals.forge(folder, changed)
    assert said in refused(folder)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"null",
        b"[" * 100_000,
        b'{"version": ' + b"[" * 1000 + b"]" * 1000 + b"}",
        b"\xff\xfe{\x00}\x00",
        b'{"a": "\x1b[31m"}',
        b"[" + b"1," * 1_900_000 + b"1]",
    ],
)
def test_description_that_is_none(folder: Path, text: bytes) -> None:
    """No JSON, no object, too deep, another encoding: our error, quickly, without a control character in it."""
    (folder / "proposal.json").write_bytes(text)
    started = time.monotonic()
    said = refused(folder)
    assert time.monotonic() - started < 10
    assert "proposal.json" in said
    assert said.isprintable()


def test_evidence_of_a_failure(folder: Path) -> None:
    """Evidence that says the candidate was wrong is no evidence for it."""
    text = (folder / "evidence.json").read_text().replace('"PASSED"', f'"{Status.INCORRECT.value}"')
    (folder / "evidence.json").write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    proposals.forge(folder, lambda data: data.update(evidence_digest=digest))
    assert "evidence.json: has no case of scale-cpu-cpp that passed" in refused(folder)


def test_names_in_errors_control_no_terminal(folder: Path) -> None:
    """What an attacker calls a file or a key is told in ASCII."""
    (folder / "\x1b]0;x\x07\u202e").write_text("")
    assert "\\x1b]0;x\\x07" in refused(folder)
    (folder / "\x1b]0;x\x07\u202e").unlink()
    proposals.forge(folder, lambda data: data.update({"\x1b[2J": 1}))
    assert "\x1b" not in refused(folder)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_random_damage_ends_in_our_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A byte of any file changed: our error, or the same proposal."""
    folder = tmp_path_factory.mktemp("damaged") / "p"
    written = proposals.write(folder)
    name = data.draw(st.sampled_from(["proposal.json", "patch.diff", "evidence.json", f"files/{PATH}"]))
    text = bytearray((folder / name).read_bytes())
    at = data.draw(st.integers(0, len(text) - 1))
    text[at] = data.draw(st.integers(0, 255))
    (folder / name).write_bytes(bytes(text))
    try:
        contents = proposal.read(folder)
    except ProposalError:
        return
    assert contents.files == {PATH: NEW.encode()}
    assert contents.base == {PATH: OLD.encode()}
    assert contents.proposal.target == written.target or json.loads(text)["target"]
