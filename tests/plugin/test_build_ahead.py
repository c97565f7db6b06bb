"""Kernels of a run are built in the background: which, how often, when, and what is said of it.

The compiler is the real one behind a script that notes the kernel and when its compiler was running.
"""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_cgins.config import load
from pytest_cgins.core.verdict import Status
from pytest_cgins.gate.evaluate import Evaluator
from tests.forked_python import gate_python

pytestmark = pytest.mark.exam

if TYPE_CHECKING:
    from conftest import Run

# The name is what -D says; "slow" takes two seconds more and writes a line every 10 ms, "endless"
# waits for a file.
COMPILER = """\
#!/bin/sh
for word; do case $word in *.cpp) compiles=1;; -DNAME=*) name=${word#-DNAME=};; esac; done
[ -n "$compiles" ] || exec g++ "$@"
echo "begin $name $$" >> {folder}/log
if [ "$name" = slow ]; then
  for i in $(seq 200); do date +%s.%N >> {folder}/beats; sleep 0.01; done
fi
while [ "$name" = endless ] && [ ! -e {folder}/go ]; do sleep 0.1; done
g++ "$@"
status=$?
echo "end $name" >> {folder}/log
exit $status
"""
IMPLEMENTATIONS = """\
version: 1
traces: [traces/tiny]
kernels:
  relu:
    op: torch.nn.functional.relu
    implementations:
"""

ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def configure(project: Path, *names: str, cuda: bool = False) -> None:
    """One implementation of relu a name, all of the same source."""
    lines = [
        f"      - {{name: {name}, device: cpu, source: kernels/relu.cpp, defines: {{NAME: {name}}}}}\n"
        for name in names
    ]
    lines += ["      - {name: gpu, device: cuda, source: kernels/relu.cu}\n"] if cuda else []
    (project / "cgins.yaml").write_text(IMPLEMENTATIONS + "".join(lines))


@pytest.fixture
def compiler(project: Path) -> dict[str, str]:
    """Environment in which kernels are built by the script, in a cache of their own."""
    script = project / "cxx"
    script.write_text(COMPILER.replace("{folder}", str(project)))
    script.chmod(0o755)
    return {"CXX": str(script), "CGINS_CACHE_DIR": str(project / "cache"), "CUDA_HOME": "/nowhere"}


def begun(project: Path) -> list[str]:
    file = project / "log"
    lines = file.read_text().splitlines() if file.exists() else []
    return [line.split()[1] for line in lines if line.startswith("begin")]


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="the counts are those without a GPU")
def test_selected_kernels_are_built_and_told_of(
    project: Path, compiler: dict[str, str], run: Callable[..., Run]
) -> None:
    """What -k leaves is built, with a line before and after; without a GPU no nvcc is asked for."""
    configure(project, "one", "two", "other", cuda=True)
    options = ["--cgins", "--cgins-no-timing", "-k", "2x3 and not other", "--cgins-json=report.json"]
    listed = run(project, *options, "--collect-only", env=compiler)
    assert "to build" not in listed.out
    assert begun(project) == []
    found = run(project, *options, env=compiler)
    assert found.counts == {"passed": 2, "skipped": 1}, found.out
    assert sorted(begun(project)) == ["one", "two"]
    lines = [line for line in found.lines if line.startswith("cgins: ")][1:]  # after the seed
    assert re.fullmatch(r"cgins: 2 of 2 kernels to build, \d+ at a time", lines[0])
    assert re.fullmatch(r"cgins: 2 kernels: 2 built in \d+\.\d s \(\d+\.\d s of compiling\)", lines[1])
    assert len(lines) == 2
    seconds = [one["build_seconds"] for name, one in found.evaluations().items() if "gpu" not in name]
    assert all(second > 0 for second in seconds)


def test_workers_of_xdist_build_each_kernel_once(
    project: Path, compiler: dict[str, str], run: Callable[..., Run]
) -> None:
    """Two workers with the same kernels to build share the work, and the whole is told at the end."""
    configure(project, "one", "two", "three", "four")
    found = run(project, "--cgins", "--cgins-no-timing", "-p", "xdist", "-n", "2", env=compiler)
    assert found.counts == {"passed": 8}, found.out
    assert Counter(begun(project)) == {"one": 1, "two": 1, "three": 1, "four": 1}
    assert re.search(r"^cgins: 4 kernels: 4 built in \d+\.\d s", found.out, re.MULTILINE)
    assert "waiting for another process" not in found.out


def test_the_line_on_a_terminal(project: Path, compiler: dict[str, str]) -> None:
    """While the first item waits the builds are shown below the cursor, and cleared before pytest goes on."""
    configure(project, "endless")
    master, slave = pty.openpty()
    python = str(gate_python().executable())
    command = [python, "-m", "pytest", "-p", "pytest_cgins.plugin", "--cgins", "--cgins-no-timing"]
    environment = {**os.environ, **compiler, **ALONE, "COLUMNS": "100", "TERM": "xterm"}
    back = f"\x1b[K\r\x1b[A\x1b[{len('cgins.yaml ')}C"
    line = re.compile(r"\r\ncgins: 0 of 1 kernel ready, building relu/endless \d+ s" + re.escape(back))
    out = ""
    with subprocess.Popen(command, cwd=project, env=environment, stdout=slave, stderr=slave) as process:
        os.close(slave)
        with suppress(OSError):  # the other end is closed
            while part := os.read(master, 65536):
                out += part.decode()
                if len(line.findall(out)) == 3:
                    (project / "go").touch()
        assert process.wait() == 0
    os.close(master)
    assert len(line.findall(out)) >= 3
    cleared = out.index(f"\r\n{back}")
    assert out.rindex("ready, building") < cleared < out.index("kernel: 1 built")


@pytest.mark.parametrize("how", ["interrupt", "-x"])
def test_the_end_of_a_run_ends_its_compilers(project: Path, compiler: dict[str, str], how: str) -> None:
    """After Ctrl-C or a first failure with -x no compiler is left, and the summary is the last that is printed."""
    names = ["endless"] if how == "interrupt" else ["broken", "endless"]
    configure(project, *names)
    file = project / "cgins.yaml"
    file.write_text(file.read_text().replace("NAME: broken", "NAME: broken, BROKEN: 1"))
    command = [sys.executable, "-m", "pytest", "-p", "pytest_cgins.plugin", "--cgins", "--cgins-no-timing"]
    command += ["-x", "-q"] if how == "-x" else []
    environment = {**os.environ, **compiler, **ALONE, "MAX_JOBS": "2"}
    # A shell that starts the tests in the background has SIGINT ignored, and a child inherits just that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(command, cwd=project, env=environment, stdout=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, before)
    end = time.monotonic() + 60
    while "endless" not in begun(project) and time.monotonic() < end:
        time.sleep(0.05)
    if how == "interrupt":
        process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == (2 if how == "interrupt" else 1), out
    last = out.rstrip().splitlines()[-1]
    if how == "interrupt":
        assert re.fullmatch(r"=+ no tests ran in [\d.]+s =+", last), out
    else:
        assert re.fullmatch(r"1 failed in [\d.]+s", last), out
        assert "kernels" not in out.replace("kernels/relu.cpp", "")  # -q
    pid = next(line.split()[2] for line in (project / "log").read_text().splitlines() if "endless" in line)
    state = Path(f"/proc/{pid}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


def test_no_timing_beside_a_compiler(
    project: Path, compiler: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A case is timed while another kernel is under way, and its compiler stands still meanwhile."""
    for name, value in compiler.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MAX_JOBS", "2")
    configure(project, "quick", "slow")
    evaluator = Evaluator(load(project / "cgins.yaml"), seed=1)
    timed: list[tuple[float, float]] = []
    call = evaluator.pool.call

    def noted(role: str, *rest: object, **options: object) -> object:
        began = time.time()
        try:
            return call(role, *rest, **options)  # type: ignore[arg-type]
        finally:
            if role.startswith("timing") and rest[0] != "ready":
                timed.append((began, time.time()))

    evaluator.pool.call = noted  # type: ignore[method-assign, assignment]
    try:
        quick, _, slow, _ = evaluator.cases()
        evaluator.evaluate(quick)  # workers import torch meanwhile
        timed.clear()
        evaluator.build_ahead([slow])
        end = time.monotonic() + 30
        while not (project / "beats").exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        assert evaluator.evaluate(quick).verdict.status is Status.PASSED
        assert evaluator.evaluate(slow).verdict.status is Status.PASSED
    finally:
        evaluator.close()
    beats = [float(line) for line in (project / "beats").read_text().splitlines()]
    began, ended = timed[0][0], timed[2][1]  # the first case is opened, measured, and finished
    assert beats[0] < began
    assert ended < beats[-1]
    assert not [beat for beat in beats if began < beat < ended]
