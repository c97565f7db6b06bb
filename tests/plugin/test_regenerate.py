"""`--cgins-regenerate` in whole runs of pytest: what is asked, what comes of it, and how the run ends."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_cgins.run.sandbox.sandbox import Sandbox
from tests.forked_python import CGINS, ForkedPython
from tests.repository import commit, git

if TYPE_CHECKING:
    from conftest import Run

pytestmark = pytest.mark.skipif(bool(Sandbox().available()), reason="this host gives no sandbox")

OPTIONS = ("--cgins", "--cgins-no-timing", "--cgins-probes=fast", "--tb=no")
YAML = """\
version: 1
traces: [traces/tiny]
kernels:
  relu:
    op: torch.nn.functional.relu
    source: kernels/relu.cpp
  threshold:
    op: torch.nn.functional.threshold
    source: kernels/threshold.cpp
"""
RIGHT = "for (int64_t i = 0; i < count; ++i) y[i] = x[i] < 0 ? 0 : x[i];"
WRONG = RIGHT.replace("x[i] < 0", "x[i] < 1")
ANSWER = f"""\
Negative numbers become 0, all others stay.

```cpp kernels/relu.cpp
<<<<<<< SEARCH
  {WRONG}
=======
  {RIGHT}
>>>>>>> REPLACE
```
"""
EXCHANGE = "relu-cpu-cpp/attempt-01/generator"


@pytest.fixture
def broken(project: Path) -> Path:
    """The project, committed, with a kernel that somebody broke afterwards."""
    (project / "cgins.yaml").write_text(YAML)
    (project / ".gitignore").write_text(".cgins/\n__pycache__/\n")
    commit(project)
    source = project / "kernels/relu.cpp"
    source.write_text(source.read_text().replace(RIGHT, WRONG))
    return project


def recorded_answer(folder: Path, text: str = ANSWER) -> Path:
    """A conversation of one answer."""
    file = folder / "conversation" / f"{EXCHANGE}.md"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return folder / "conversation"


def result(project: Path, target: str = "relu-cpu-cpp") -> Any:
    """What became of a target in the one run that there is."""
    (folder,) = (project / ".cgins/runs").glob("2*")
    return json.loads((folder / target / "result.json").read_text())


@pytest.mark.exam
def test_a_source_that_includes_a_file_from_outside_cannot_be_built(
    broken: Path, run: Callable[..., Run], tmp_path: Path
) -> None:
    """Past the static check, the compiler finds nothing in a home folder, and its error is the attempt's."""
    (broken / "kernels/table.h").write_text("#ifdef TABLE\n#include TABLE\n#endif\n")
    source = broken / "kernels/relu.cpp"
    source.write_text(
        source.read_text().replace("#include <cgins.h>", '#include <cgins.h>\n#include "table.h"')
    )
    named = ANSWER.partition("```cpp")[0]
    named += "```cpp kernels/relu.cpp\n<<<<<<< SEARCH\n#include <cgins.h>\n=======\n#include <cgins.h>\n"
    with tempfile.TemporaryDirectory(
        prefix="home-"
    ) as home:  # whose name the static check takes for any text
        secret = Path(home, ".netrc")
        secret.write_text("hush_4711 is no type;\n")
        answer = f'{named}#define TABLE "{secret}"\n>>>>>>> REPLACE\n```\n'
        llm = f"--cgins-llm=replay:{recorded_answer(tmp_path, answer)}"
        found = run(broken, *OPTIONS, "--cgins-regenerate", llm, env={"HOME": home})
    (attempt,) = broken.glob(".cgins/runs/2*/relu-cpu-cpp/attempt-01")
    said = (attempt / "build.log").read_text()
    assert f"{secret}: No such file or directory" in said, found.out
    told = [file for file in broken.glob(".cgins/runs/**/*") if file.is_file()]
    assert not any(b"hush_4711" in file.read_bytes() for file in told)


def test_a_broken_kernel_becomes_a_proposal(
    broken: Path, run: Callable[..., Run], forked_python: ForkedPython, tmp_path: Path
) -> None:
    """With the exchange the prompt is written, the run ends with 7, and `cgins runs resume` ends it.

    Only what failed is regenerated, and the project is not touched. The journal lies in the folder of `--cgins-runs`, has
    what else was asked for, and what is printed names it. A commit between the run's parts changes nothing: times are
    compared with the same base.
    """
    exchange, runs = tmp_path / "exchange", tmp_path / "runs"
    before = (broken / "kernels/relu.cpp").read_text()
    asked = (
        f"--cgins-llm=exchange:{exchange}",
        "--cgins-model=somebody",
        "--cgins-policy=branch",
        "--cgins-budget=repair_attempts=2",
    )
    # One compiler at a time changes nothing, and kernels of a CPU are not for compute-sanitizer.
    others = ("--cgins-jobs=1", "--cgins-sanitize=memcheck")
    found = run(broken, *OPTIONS, *others, "--cgins-regenerate=failed", *asked, "--cgins-runs", str(runs))
    assert found.code == 7, found.out
    (folder,) = runs.glob("2*")
    assert not (broken / ".cgins").exists()
    about = json.loads((folder / "run.json").read_text())
    assert (about["policy"], about["models"]["generator"]) == ("branch", ["somebody"])
    assert "relu-cpu-cpp: attempt 1 of 2: asking the generator" in found.out
    assert "threshold" not in found.out.partition("cgins: regenerate")[2]
    prompt = (exchange / EXCHANGE / "prompt.md").read_text()
    assert "torch.nn.functional.relu" in prompt
    assert WRONG in prompt
    again = f"cgins runs resume {folder.name} --runs {runs}"
    assert f"to go on: {again}" in found.out
    (exchange / EXCHANGE / "answer.md").write_text(ANSWER)
    git(broken, "commit", "--allow-empty", "-qm", "meanwhile")
    done = forked_python.run([*CGINS, "runs", "resume", folder.name, "--runs", str(runs)], cwd=broken)
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "relu-cpu-cpp" / "result.json").read_text())["state"] == "accepted"
    assert (broken / "kernels/relu.cpp").read_text() == before
    (proposal,) = folder.glob("proposals/*")
    assert RIGHT in (proposal / "files/kernels/relu.cpp").read_text()
    assert json.loads((proposal / "proposal.json").read_text())["sandbox"] is True
    subprocess.run(["git", "apply", "--check", proposal / "patch.diff"], cwd=broken, check=True)


@pytest.mark.exam
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "does not say which model is asked"),
        (
            ["--cgins-llm=openai", "--cgins-model=m"],
            "OPENAI_API_KEY is not set, which is to hold the key of openai",
        ),
        (["--cgins-llm=nobody"], "--cgins-llm does not begin with a provider"),
    ],
)
def test_nobody_can_be_asked(broken: Path, run: Callable[..., Run], options: list[str], said: str) -> None:
    """That is found out before the first test: a usage error, not a run for nothing."""
    found = run(broken, *OPTIONS, "--cgins-regenerate", *options, env={"OPENAI_API_KEY": ""})
    assert found.code == 4, found.out
    assert said in found.out
    assert "INCORRECT" not in found.out


@pytest.mark.exam
def test_a_kernel_that_is_not_there(broken: Path, run: Callable[..., Run], tmp_path: Path) -> None:
    """A name that no kernel has is an error that offers the nearest."""
    llm = f"--cgins-llm=replay:{tmp_path}"
    found = run(broken, *OPTIONS, "--cgins-regenerate=rellu", llm, "-k", "relu")
    assert 'has no kernel "rellu"' in found.out
    assert 'did you mean "relu"?' in found.out
    assert found.code == 1


@pytest.mark.exam
def test_nothing_to_regenerate(project: Path, run: Callable[..., Run], tmp_path: Path) -> None:
    """A green gate asks nobody and leaves no journal."""
    (project / "cgins.yaml").write_text(YAML)
    found = run(project, *OPTIONS, "--cgins-regenerate", f"--cgins-llm=replay:{tmp_path}", "-k", "relu")
    assert found.code == 0, found.out
    assert "cgins: regenerate" not in found.out
    assert not (project / ".cgins").exists()


@pytest.mark.exam
def test_on_xdist_s_controller_and_without_a_sandbox(
    broken: Path, run: Callable[..., Run], tmp_path: Path
) -> None:
    """With workers the controller regenerates, once, after all of them.

    Where the user wants no sandbox, the header says so, and so does the proposal.
    """
    llm = f"--cgins-llm=replay:{recorded_answer(tmp_path)}"
    options = ("-p", "xdist", "-n", "2", *OPTIONS, "--cgins-regenerate=relu", llm, "--cgins-sandbox=off")
    found = run(broken, *options, "-k", "relu")
    assert found.out.count("relu-cpu-cpp: accepted after 1 of 5 attempts") == 1, found.out
    assert result(broken)["state"] == "accepted"
    assert "cgins: no sandbox: kernels that a model wrote run with all that you may do" in found.out
    (proposal,) = (broken / ".cgins/runs").glob("*/proposals/*")
    about = json.loads((proposal / "proposal.json").read_text())
    assert about["sandbox"] is False
    assert about["sandbox_note"]
