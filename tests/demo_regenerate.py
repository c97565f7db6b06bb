"""`make demo-regenerate`: a kernel is broken, the gate fails, a recorded model repairs it, a pull request is open.

The server is a twin of GitHub on this machine, over a bare repository: see `tests.pull_request.twin`. Everything else is what
a user runs. Prints each command before it runs; any that does not end as it should ends the demo.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import yaml

from tests.pull_request.twin import WRITER, serve

EXAMPLE = Path(__file__).parents[1] / "example_project"
KERNEL, SOURCE = "layer_norm/cpu-cpp", "kernels/layer_norm.cpp"
RIGHT, BROKEN = "variance /= in.width;", "variance /= (in.width - 1);"


class DemoError(Exception):
    """A command did not end as it should."""


class Demo:
    """The steps, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.bare = folder / "kernels.git"
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")
        }
        self.environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def run(self, *words: str, expect: Sequence[int] = (0,), quiet: bool = False) -> str:
        """Run a command in the project and print both; its output.

        Raises:
            DemoError: it ended otherwise than expected.
        """
        if not quiet:
            print(f"\n$ {shlex.join(words)}", flush=True)
        done = subprocess.run(
            words, cwd=self.project, env=self.environment, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        if not quiet:
            print(done.stdout, end="", flush=True)
        if done.returncode not in expect:
            raise DemoError(
                f"{shlex.join(words)} ended with {done.returncode}\n{done.stdout if quiet else ''}"
            )
        return done.stdout

    def git(self, *words: str) -> str:
        """The same for git, of which nobody needs to see the output."""
        return self.run("git", "-c", "user.name=demo", "-c", "user.email=demo@localhost", *words, quiet=True)

    def prepare(self, remote: str) -> None:
        """One kernel of the example project, which somebody broke, with a model's traces: all have it timed for minutes."""
        left_out = shutil.ignore_patterns("__pycache__", ".cgins", ".benchmarks", "conversations")
        shutil.copytree(EXAMPLE, self.project, ignore=left_out)
        config = self.project / "cgins.yaml"
        document = yaml.safe_load(config.read_text(encoding="utf-8"))
        document |= {"traces": ["traces/gpt2"], "kernels": {"layer_norm": document["kernels"]["layer_norm"]}}
        config.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        (self.project / ".gitignore").write_text("__pycache__/\n.cgins/\n", encoding="utf-8")
        self.git("init", "-q", "-b", "main")
        self._commit("The example project")
        file = self.project / SOURCE
        file.write_text(file.read_text(encoding="utf-8").replace(RIGHT, BROKEN), encoding="utf-8")
        self._commit("layer_norm: a small clean-up")
        self.git("push", "-q", str(self.bare), "main")
        self.git("remote", "add", "origin", remote)
        self.git("config", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")
        print(f"A commit on main has changed {SOURCE}:")
        print(self.git("show", "--format=%h %s", "--unified=0", "HEAD"))

    def _commit(self, message: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-qm", message)

    def loop(self) -> None:
        """Gate, regenerate, look at the proposal, and gate the pull request's branch."""
        gate = (
            "pytest",
            "--cgins",
            "-q",
            "--tb=no",
            "-k",
            "layer_norm and cpu-cpp and gpt2 and not backward",
        )
        recording = f"--cgins-llm=replay:{EXAMPLE / 'conversations'}"
        told = self.run(*gate, "--cgins-regenerate", recording, expect=(1,))
        if "opened #1" not in told:
            raise DemoError("no pull request was opened")
        proposal = next((self.project / ".cgins/runs").glob("*/proposals/layer_norm-cpu-cpp"))
        self.run("cgins", "proposal", "show", str(proposal.relative_to(self.project)))
        self.git("fetch", "-q", str(self.bare), "+refs/heads/*:refs/remotes/origin/*")
        branch = "origin/cgins/repair/layer_norm-cpu-cpp"
        names = self.git("branch", "-r").split()
        branch = next((name for name in names if name.startswith("origin/cgins/")), branch)
        self.run("git", "checkout", "-q", branch)
        self.run(*gate)


def main() -> int:
    """Run the demo; 1 if a step did not end as it should."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cgins-demo-") as name:
        demo = Demo(Path(name).resolve())
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", demo.bare], check=True)
        with serve(demo.bare) as twin:
            demo.environment |= {"GITHUB_TOKEN": WRITER, "GITHUB_SERVER_URL": twin.url}
            try:
                demo.prepare(twin.remote)
                demo.loop()
            except DemoError as error:
                print(f"demo: {error}", file=sys.stderr)
                return 1
    print(f"\nBroken, found, repaired, proposed, and green again in {time.monotonic() - started:.0f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
