"""Find the commit that a pull request is compared with, and fetch it where the checkout lacks it. Standard library only.

A checkout of a pull request is mostly its merge into the base branch, one commit deep: the base is then the merge's
first parent, whose name is in the commit and whose files are not there. A token is used for that one fetch, before any
code of the repository runs. Outputs: `base`, the commit, "" if it is not known; `baseline`, what the gate is told. In a
pull request that is always a commit: the `gate.baseline` of a cgins.yaml is the pull request's own word.
"""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from workflow import set_output, warning

LIMIT_S = 300
COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class Clone:
    """The checkout, as far as it is asked here."""

    def __init__(self, folder: str, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = {
            **{
                name: value
                for name, value in environment.items()
                if not name.startswith(("INPUT_", "CGINS_"))
            },
            "GIT_TERMINAL_PROMPT": "0",
            # Commits as they were made, whatever stands in for them in this clone.
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_GRAFT_FILE": f"{os.devnull}/none",
        }
        self._server = environment.get("GITHUB_SERVER_URL", "https://github.com")
        self._token = environment["INPUT_TOKEN"]

    def git(self, *words: str, environment: Mapping[str, str] | None = None) -> str:
        """What git says; "" if it fails."""
        # In a container the checkout is mostly another user's, and git would look at nothing.
        command = [
            "git",
            "-C",
            self._folder,
            "-c",
            f"core.hooksPath={os.devnull}",
            "-c",
            "safe.directory=*",
            *words,
        ]
        try:
            done = subprocess.run(
                command,
                env={**self._environment, **(environment or {})},
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            return ""
        return done.stdout.strip() or "done"

    def has(self, commit: str) -> bool:
        """Whether a commit and its files are there."""
        return bool(self.git("cat-file", "-e", f"{commit}^{{tree}}"))

    def shallow(self) -> bool:
        """Whether history is cut off."""
        return self.git("rev-parse", "--is-shallow-repository") == "true"

    def parents(self) -> list[str]:
        """Of HEAD, as the commit has them: git itself hides those that a shallow clone lacks."""
        head = self.git("cat-file", "commit", "HEAD").partition("\n\n")[0]
        return re.findall(r"^parent ([0-9a-f]+)$", head, re.MULTILINE)

    def shared(self, branch: str) -> str:
        """The last commit that HEAD and a branch of the server share; "" if none is known."""
        found = self.git("merge-base", "HEAD", f"refs/remotes/origin/{branch}")
        return found if COMMIT.fullmatch(found) else ""

    def fetch(self, *words: str) -> bool:
        """Fetch from where the checkout came from; the token is for GitHub's own server alone."""
        environment = {}
        url = self.git("remote", "get-url", "origin")
        if self._token and url.startswith(f"{self._server}/"):
            secret = base64.b64encode(f"x-access-token:{self._token}".encode()).decode()
            environment = {
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": f"http.{self._server}/.extraheader",
                "GIT_CONFIG_VALUE_0": f"AUTHORIZATION: basic {secret}",
            }
        return bool(self.git("fetch", "--quiet", "--no-tags", *words, environment=environment))


def base(clone: Clone, environment: Mapping[str, str]) -> tuple[str, str]:
    """The commit, and what the gate is told: "" outside of a pull request, where it looks for itself."""
    wanted = environment["INPUT_BASELINE"]
    if wanted and set(wanted) != {"0"}:  # a new branch's push has forty zeros for the commit before
        if COMMIT.fullmatch(wanted) and not clone.has(wanted):
            clone.fetch("--depth=1" if clone.shallow() else "--no-write-fetch-head", "origin", wanted)
        found = clone.git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{wanted}^{{commit}}")
        return (found if COMMIT.fullmatch(found) else ""), wanted
    branch = environment.get("GITHUB_BASE_REF", "")
    if not branch:
        return "", ""
    found = _of_pull_request(clone, branch, environment)
    if not found:
        warning(
            f"the commit that this pull request left {branch} at could not be found or fetched: nothing is compared with it; "
            "give actions/checkout fetch-depth 0"
        )
    return found, found


def _of_pull_request(clone: Clone, branch: str, environment: Mapping[str, str]) -> str:
    head = clone.git("rev-parse", "--verify", "--quiet", "HEAD")
    if not head:
        return ""
    if not clone.shallow():
        return clone.shared(branch)
    # Others are merges too, as of the base branch into the pull request's.
    is_github_s_merge = (environment.get("GITHUB_EVENT_NAME"), environment.get("GITHUB_SHA")) == (
        "pull_request", head
    )  # fmt: skip
    parents = clone.parents() if is_github_s_merge else []
    found = parents[0] if len(parents) == 2 else ""
    if found and (clone.has(found) or clone.fetch("--depth=1", "origin", found)):
        return found
    clone.fetch("--unshallow", "origin", "HEAD")
    clone.fetch("origin", f"+refs/heads/{branch}:refs/remotes/origin/{branch}")
    return clone.shared(branch)


def main() -> int:
    """Write the outputs."""
    folder = str(Path(os.environ["CGINS_FOLDER"]))
    found, told = base(Clone(folder, os.environ), os.environ)
    set_output("base", found)
    set_output("baseline", told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
