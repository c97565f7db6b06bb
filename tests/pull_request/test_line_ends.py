"""Kernels of which a checkout has other bytes than git stores: what a proposal was made on is found again."""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import dataclass

import pytest

from tests.pull_request.conftest import BRANCH, BROKEN, FIXED, SOURCE, Place, commit, git

pytestmark = pytest.mark.exam

CRLF_BROKEN, CRLF_FIXED = BROKEN.replace("\n", "\r\n"), FIXED.replace("\n", "\r\n")
IDENT = "// $Id$\n"


@dataclass(frozen=True)
class Kept:
    """How a repository keeps the kernel."""

    attributes: str
    """Of `.gitattributes`, at the top or, after `kernels:`, there; "" for none."""
    stored: str
    """What git has of the file on the base branch."""
    base: str
    """What a checkout has."""
    new: str
    """What a run made of that."""
    wanted: str
    """What git is to store."""


def _ident(text: str) -> str:
    blob = subprocess.run(
        ["git", "hash-object", "--stdin"], input=text.encode(), capture_output=True, check=True
    )
    return text.replace("$Id$", f"$Id: {blob.stdout.decode().strip()} $")


KEPT = {
    "plain": Kept("", BROKEN, BROKEN, FIXED, FIXED),
    "eol": Kept("*.cpp text eol=crlf\n", BROKEN, CRLF_BROKEN, CRLF_FIXED, FIXED),
    "eol-for-all": Kept("* text=auto eol=crlf\n", BROKEN, CRLF_BROKEN, CRLF_FIXED, FIXED),
    "eol-below": Kept("kernels:*.cpp eol=crlf\n", BROKEN, CRLF_BROKEN, CRLF_FIXED, FIXED),
    "eol-and-new-lines-without": Kept("*.cpp text eol=crlf\n", BROKEN, CRLF_BROKEN, FIXED, FIXED),
    "a-users-autocrlf": Kept("", BROKEN, CRLF_BROKEN, CRLF_FIXED, FIXED),
    "carriage-returns-that-are-stored": Kept("", CRLF_BROKEN, CRLF_BROKEN, CRLF_FIXED, CRLF_FIXED),
    "eol-and-some-stored": Kept("*.cpp text eol=crlf\n", CRLF_BROKEN + BROKEN, CRLF_BROKEN * 2, CRLF_FIXED * 2, FIXED * 2),
    "never-normalized": Kept("*.cpp text eol=crlf\n", CRLF_BROKEN, CRLF_BROKEN, CRLF_FIXED, CRLF_FIXED),
    "ident": Kept("*.cpp ident\n", IDENT + BROKEN, _ident(IDENT + BROKEN), _ident(IDENT + BROKEN) + FIXED, IDENT + BROKEN + FIXED),
    "encoding": Kept("*.cpp working-tree-encoding=UTF-8\n", "// ü\n" + BROKEN, "// ü\n" + BROKEN, "// ü\n" + FIXED, "// ü\n" + FIXED),
    "a-filter-of-others": Kept("*.cpp filter=format\n", BROKEN, BROKEN, FIXED, FIXED),
    "binary": Kept("*.cpp -text -diff\n", BROKEN, BROKEN, FIXED, FIXED),
}  # fmt: skip


def _keep(place: Place, kept: Kept, stored: str) -> None:
    """Have the base branch keep the kernel so, by plumbing that converts nothing."""
    text = kept.attributes.removeprefix("kernels:")
    name = "kernels/.gitattributes" if "kernels:" in kept.attributes else ".gitattributes"
    files = {SOURCE: stored} | ({name: text} if text else {})
    for path, content in files.items():
        blob = subprocess.run(
            ["git", "-C", place.other, "hash-object", "-w", "--no-filters", "--stdin"], input=content.encode(),
            capture_output=True, check=True,
        ).stdout.decode().strip()  # fmt: skip
        git(place.other, "update-index", "--add", "--cacheinfo", f"100644,{blob},{path}")
    git(place.other, "commit", "--quiet", "--allow-empty", "-m", "Kept otherwise")
    git(place.other, "push", "--quiet", "origin", "HEAD:refs/heads/main")


def _shown(place: Place, name: str) -> str:
    return subprocess.run(
        ["git", "-C", place.bare, "cat-file", "blob", name], capture_output=True, check=True
    ).stdout.decode()


@pytest.mark.parametrize(
    ("name", "how"),
    [
        *((name, "api") for name in KEPT),
        ("eol-and-some-stored", "push"),
        *(
            pytest.param(name, "push", marks=pytest.mark.exam)
            for name in KEPT
            if name != "eol-and-some-stored"
        ),
    ],
)
def test_a_kernel_that_a_checkout_has_otherwise(place: Place, name: str, how: str) -> None:
    """Stale only if the text is another; git stores what it would of a commit by hand; once merged, it is found there."""
    kept = KEPT[name]
    folder = place.propose({SOURCE: kept.new}, base={SOURCE: kept.base})

    def opened(code: int = 0) -> str:
        assert place.open(folder, "--commit-with", how) == code
        return place.printed().out

    _keep(place, kept, kept.stored.replace("return 1", "return 7"))
    assert "the proposal is stale" in opened(1)
    assert place.twin.api.pulls == []
    _keep(place, kept, kept.stored)
    opened()
    assert _shown(place, f"{BRANCH}:{SOURCE}") == kept.wanted
    assert git(place.bare, "diff", "--name-only", "main", BRANCH) == SOURCE
    assert "unchanged" in opened()
    place.twin.api.merge(place.twin.api.pulls[0])
    assert "main already has these files" in opened()


def _pointer(text: str) -> str:
    content = text.encode()
    oid = hashlib.sha256(content).hexdigest()
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {len(content)}\n"


LFS = "*.cpp filter=lfs diff=lfs merge=lfs -text\n"


def test_a_kernel_that_lfs_keeps(place: Place) -> None:
    """It is not called stale, which another run would not cure: what can be done is told. Once there, it is found."""
    kept = Kept(LFS, _pointer(BROKEN), BROKEN, FIXED, _pointer(FIXED))
    _keep(place, kept, kept.stored)
    folder = place.propose()
    assert place.open(folder) == 2
    output = place.printed().err
    assert f'"{SOURCE}" is kept by Git LFS on the base branch' in output
    assert "→ apply the proposal's patch.diff in a clone and push it" in output
    _keep(place, kept, kept.wanted)
    assert place.open(folder) == 0
    assert "main already has these files" in place.printed().out
    _keep(place, kept, _pointer("int scale() { return 7; }\n"))
    assert place.open(folder) == 1
    assert "the proposal is stale" in place.printed().out


def test_an_executable_keeps_its_mode(place: Place) -> None:
    """Converted or not."""
    (place.other / SOURCE).chmod(0o755)
    commit(place.other, {".gitattributes": "*.cpp eol=crlf\n"})
    folder = place.propose({SOURCE: CRLF_FIXED}, base={SOURCE: CRLF_BROKEN})
    assert place.open(folder, "--commit-with", "push") == 0
    assert git(place.bare, "ls-tree", BRANCH, SOURCE).startswith("100755")
