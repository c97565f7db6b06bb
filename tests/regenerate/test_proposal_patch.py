"""Patches: git takes them, and they lead back to the old contents."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cgins.core.errors import ProposalError
from pytest_cgins.regenerate.proposal import patch as proposal_patch

LINES = st.lists(st.sampled_from(["a", "b", "c", "", "- d", "+ e", "@@ -1 +1 @@", "x\r", " é"]), max_size=30)
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, LINES, st.sampled_from(["", "\n"])).map(
    str.encode
)


def applied(folder: Path, base: dict[str, bytes], patch: bytes) -> dict[str, bytes]:
    for path, content in base.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    command = ["git", "-c", "apply.whitespace=nowarn", "apply", "-p1", "-"]
    done = subprocess.run(command, cwd=folder, input=patch, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"a\nb\nc\n", b"a\nB\nc\n"),
        (b"a\r\nb\r\n", b"a\r\nB\r\n"),
        (b"a\r\nb\r\n", b"a\nb\n"),
        (b"a\nb", b"a\nb\n"),
        (b"a\nb\n", b"a\nb"),
        (b"a", b"b"),
        (b"\xef\xbb\xbfa\n", b"a\n"),
        (b"\xff old Latin-1\n", b"new\n"),
        (b"same\n" * 50 + b"end\n", b"first\n" + b"same\n" * 50 + b"last\n"),
        (b"\\ No newline at end of file\n", b"\\ No newline at end of file\nx"),
        (b"x\x0cy\x0b\x1cz\n", b"x\x0cY\x0b\x1cz\n"),
    ],
)
def test_git_applies_the_patch(tmp_path: Path, old: bytes, new: bytes) -> None:
    """What git makes of the old file with the patch is the new one, and the patch leads back."""
    patch = proposal_patch.make({"k/a.cpp": old}, {"k/a.cpp": new})
    assert applied(tmp_path, {"k/a.cpp": old}, patch) == {"k/a.cpp": new}
    assert proposal_patch.invert(patch, {"k/a.cpp": new}, frozenset()) == {"k/a.cpp": old}


def test_new_files_and_blanks_in_names(tmp_path: Path) -> None:
    """A new file is made, and a name with a blank is one name to git."""
    new = {"my kernels/a b.cu": b"one\ntwo", "z.py": b"x\n"}
    patch = proposal_patch.make({"z.py": b"y\n"}, new)
    assert applied(tmp_path, {"z.py": b"y\n"}, patch) == new
    assert proposal_patch.invert(patch, new, frozenset({"my kernels/a b.cu"})) == {"z.py": b"y\n"}


def test_long_differences_are_replaced_as_a_whole(tmp_path: Path) -> None:
    """Two files of many lines that differ everywhere take no time, and git applies what comes out."""
    count = proposal_patch.MOST_COMPARED_LINES + 100
    old = b"".join(b"old %d\n" % (index % 90) for index in range(count))
    new = b"head\n" * 5 + b"".join(b"new %d\n" % (index % 90) for index in range(count))
    patch = proposal_patch.make({"a.cu": b"head\n" * 5 + old + b"tail\n"}, {"a.cu": new + b"tail\n"})
    assert applied(tmp_path, {"a.cu": b"head\n" * 5 + old + b"tail\n"}, patch) == {"a.cu": new + b"tail\n"}
    assert patch.count(b"\n@@ ") == 1


@settings(max_examples=200, deadline=None)
@given(TEXTS, TEXTS)
def test_every_patch_leads_back(old: bytes, new: bytes) -> None:
    """From any text to any other, and back."""
    if old == new or not new:
        return
    base = {"a.py": old} if old else {}
    patch = proposal_patch.make(base, {"a.py": new})
    assert proposal_patch.invert(patch, {"a.py": new}, frozenset({"a.py"}) - set(base)) == base


@pytest.mark.exam
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_patches_end_in_our_error(data: st.DataObject) -> None:
    """Whatever a patch is turned into: our error, or old contents from which it really leads to the new ones."""
    old, new = b"a\nb\nc\nd\ne\nf\ng\nh\n", b"a\nB\nc\nd\ne\nf\ng\nH"
    patch = bytearray(proposal_patch.make({"a.py": old}, {"a.py": new}))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(patch) - 1))
        patch[at : at + data.draw(st.integers(0, 3))] = data.draw(
            st.sampled_from([b"", b"\n", b"+", b"-", b" ", b"9"])
        )
    try:
        base = proposal_patch.invert(bytes(patch), {"a.py": new}, frozenset())
    except ProposalError:
        return
    again = proposal_patch.make(base, {"a.py": new})
    assert proposal_patch.invert(again, {"a.py": new}, frozenset()) == base
