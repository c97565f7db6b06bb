"""Builds side by side: what is built when, what is waited for, and what is left when the run ends.

The compiler is a stand-in that notes when it begins and ends, and leaves a file that nobody loads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from filelock import FileLock

from pytest_cgins.building import build as builds
from pytest_cgins.building.build_queue import BuildQueue
from pytest_cgins.building.cache.store import Cache
from pytest_cgins.building.contracts.source import find
from pytest_cgins.building.progress import Progress
from pytest_cgins.config import load
from pytest_cgins.core.case import KernelSource
from pytest_cgins.core.errors import BuildError, InfrastructureError, SourceError
from tests.building.processes import executable, marked, until

SOURCE = """\
// cgins: k_{name}(Tensor input) -> Tensor
extern "C" int k_{name}(const DLTensor*, DLTensor*, cgins_stream) { return 0; }
"""
# A source is compiled for as long as there is a file "hold-NAME"; one with BROKEN in it is refused.
COMPILER = """\
#!/bin/sh
for word; do
  [ "$previous" = -o ] && out=$word
  case $word in *.cpp) source=$word;; esac
  previous=$word
done
[ -n "$source" ] || { [ -z "$out" ] && exec g++ "$@"; echo x > $out; exit 0; }
name=$(basename $source .cpp)
echo "begin $name" >> {folder}/log
sleep 0.05
while [ -e {folder}/hold-$name ]; do sleep 0.02; done
echo "end $name" >> {folder}/log
echo "0.o: $source" > 0.d
grep -q BROKEN $source && { echo "$source:1:1: error: broken" >&2; exit 1; }
echo x > $out
"""


@dataclass
class Workshop:
    """Sources, a cache and the log of the compiler."""

    folder: Path
    cache: Path

    def sources(self, *names: str, text: str = SOURCE) -> list[KernelSource]:
        kernels = ""
        for name in names:
            (self.folder / f"{name}.cpp").write_text(text.replace("{name}", name))
            kernels += f"  {name}: {{op: torch.relu, source: {name}.cpp}}\n"
        (self.folder / "cgins.yaml").write_text(f"version: 1\nkernels:\n{kernels}")
        config = load(self.folder / "cgins.yaml", require_traces=False)
        return [find(config, kernel, kernel.implementations[0]) for kernel in config.kernels]

    def hold(self, name: str) -> Path:
        """Keep the compiler at a source until the file is gone."""
        file = self.folder / f"hold-{name}"
        file.touch()
        return file

    @property
    def log(self) -> list[str]:
        file = self.folder / "log"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def begun(self) -> list[str]:
        return [line.split()[1] for line in self.log if line.startswith("begin")]

    @property
    def most_at_once(self) -> int:
        now = most = 0
        for line in self.log:
            now += 1 if line.startswith("begin") else -1
            most = max(most, now)
        return most


Make = Callable[[int], BuildQueue]


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    compiler = executable(tmp_path / "cxx", COMPILER.replace("{folder}", str(tmp_path)))
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("MAX_JOBS", "8")
    return Workshop(folder=tmp_path, cache=tmp_path / "cache")


@pytest.fixture
def make_ahead(workshop: Workshop) -> Iterator[Make]:
    made: list[BuildQueue] = []

    def make(jobs: int) -> BuildQueue:
        made.append(BuildQueue(jobs=jobs, cache=workshop.cache))
        return made[-1]

    yield make
    for ahead in made:
        ahead.close()


def test_builds_overlap_up_to_the_jobs(workshop: Workshop, make_ahead: Make) -> None:
    """With three jobs three of five compilers run at once, and every kernel is compiled once."""
    ahead = make_ahead(3)
    sources = workshop.sources("a", "b", "c", "d", "e")
    holds = [workshop.hold(name) for name in "abcde"]
    ahead.add(sources)
    until(lambda: len(workshop.begun) == 3)
    time.sleep(0.1)
    assert len(workshop.begun) == 3
    for hold in holds:
        hold.unlink()
    assert {ahead.result(source).cached for source in sources} == {False}
    assert workshop.most_at_once == 3
    assert sorted(workshop.begun) == list("abcde")
    again = make_ahead(3)
    assert {again.result(source).cached for source in sources} == {True}
    assert len(workshop.begun) == 5


def test_the_first_needed_then_the_longest(workshop: Workshop, make_ahead: Make) -> None:
    """The first kernel goes first, and the others in the order of their last build times, unknown ones between."""
    for name, seconds in {"b": 0.2, "c": 7.0, "e": 3.0}.items():
        Cache(workshop.cache).keep_seconds(f"{name}/cpp", seconds)
    ahead = make_ahead(1)
    sources = workshop.sources("a", "b", "c", "d", "e")
    assert {source.implementation for source in sources} == {"cpp"}
    ahead.add(sources)
    until(lambda: ahead.progress().done)
    assert workshop.begun == ["a", "c", "e", "d", "b"]


def test_what_is_asked_for_is_begun_at_once(workshop: Workshop, make_ahead: Make) -> None:
    """While a long build has the only job, another one that is waited for does not wait for it."""
    ahead = make_ahead(1)
    sources = workshop.sources("long", "other", "wanted")
    hold = workshop.hold("long")
    ahead.add(sources)
    until(lambda: workshop.begun == ["long"])
    seen: list[Progress | None] = []
    assert ahead.result(sources[2], on_wait=seen.append).library
    assert workshop.log == ["begin long", "begin wanted", "end wanted"]
    assert seen[-1] is None
    hold.unlink()
    until(lambda: ahead.progress().done)
    assert ahead.progress().built == 3


def test_errors_wait_for_who_asks(workshop: Workshop, make_ahead: Make) -> None:
    """A source that is refused raises whenever it is asked for, and no other does."""
    ahead = make_ahead(2)
    good, gone = workshop.sources("good", "gone")
    (bad,) = workshop.sources("bad", text=SOURCE + "// BROKEN\n")
    (workshop.folder / "gone.cpp").unlink()
    ahead.add([bad, gone, good])
    for _ in range(2):
        with pytest.raises(BuildError, match=r"refused .*bad\.cpp: 1 error"):
            ahead.result(bad)
        with pytest.raises(SourceError, match=r"gone\.cpp"):
            ahead.result(gone)
    assert ahead.result(good).library
    progress = ahead.progress()
    assert (progress.built, progress.failed, progress.done) == (1, 2, True)


def test_a_cache_that_cannot_be_used(workshop: Workshop, make_ahead: Make) -> None:
    """A file in the place of the cache is an error of who asks, not a thread's."""
    workshop.cache.write_text("")
    ahead = make_ahead(2)
    (source,) = workshop.sources("a")
    ahead.add([source])
    with pytest.raises((InfrastructureError, OSError), match="cache"):
        ahead.result(source)


def test_python_kernels_are_ready(workshop: Workshop, make_ahead: Make) -> None:
    """A Python callable needs no build, and is in no count."""
    (source,) = workshop.sources("a")
    python = replace(source, contract="python", files=(), module="math", entry="sin")
    ahead = make_ahead(1)
    ahead.add([python])
    assert ahead.result(python).library == ""
    assert ahead.progress() == Progress()


def test_closing_ends_compilers_and_threads(workshop: Workshop, make_ahead: Make) -> None:
    """At the end of a run its compilers are killed, its threads end, and an unfinished kernel is an error."""
    ahead = make_ahead(2)
    sources = workshop.sources("a", "b", "c")
    for name in "ab":
        workshop.hold(name)
    ahead.add(sources)
    until(lambda: len(workshop.begun) == 2)
    ahead.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "cgins-build"]
    # What was killed is seen in /proc until it is reaped.
    until(lambda: not marked(workshop.folder))
    with pytest.raises(InfrastructureError, match="before the run ended"):
        ahead.result(sources[2])
    assert workshop.begun in (["a", "b"], ["b", "a"])
    assert all(line.startswith("begin") for line in workshop.log)
    fresh = make_ahead(2)
    (workshop.folder / "hold-a").unlink()
    assert fresh.result(sources[0]).library  # a kill is no refusal that would be remembered


def test_a_kernel_of_another_process_is_left_until_it_is_needed(workshop: Workshop, make_ahead: Make) -> None:
    """While another process builds one kernel the others are built, and who asks for it waits for that process."""
    ahead = make_ahead(1)
    sources = workshop.sources("theirs", "mine", "also")
    base, _ = builds.base_key(sources[0], builds.planner(sources[0])(sources[0]))
    lock = FileLock(workshop.cache / "locks" / f"{base}.lock", thread_local=False)
    (workshop.cache / "locks").mkdir(parents=True)
    with lock:
        ahead.add(sources)
        until(lambda: ahead.progress().built == 2)
        assert "theirs" not in workshop.begun
        assert not ahead.progress().done
        threading.Timer(0.2, lock.release, [True]).start()
        assert ahead.result(sources[0]).library
    assert workshop.begun == ["mine", "also", "theirs"]


def test_nothing_is_compiled_while_it_is_quiet(workshop: Workshop, make_ahead: Make) -> None:
    """What runs is stopped, what has not begun does not begin, and all goes on afterwards."""
    ahead = make_ahead(1)
    sources = workshop.sources("a", "b")
    hold = workshop.hold("a")
    ahead.add(sources)
    until(lambda: workshop.begun == ["a"])
    with ahead.quiet():
        hold.unlink()
        time.sleep(0.3)
        assert workshop.log == ["begin a"]
    until(lambda: workshop.log == ["begin a", "end a", "begin b", "end b"])


def test_who_made_it_quiet_may_ask_for_a_kernel(workshop: Workshop, make_ahead: Make) -> None:
    """A timed function that calls a kernel for the first time has it built, and it is quiet again afterwards."""
    ahead = make_ahead(1)
    asked, other = workshop.sources("asked", "other")
    with ahead.quiet(), ahead.quiet():
        asker = ThreadPoolExecutor(1).submit  # another thread is no reason to compile
        waiting = asker(ahead.result, other)
        time.sleep(0.1)
        assert workshop.log == []
        assert ahead.result(asked, on_wait=_limit(20.0)).library
        log = list(workshop.log)
        time.sleep(0.1)
        assert workshop.log == log
    assert waiting.result(20.0).library


def _limit(seconds: float) -> Callable[[object], None]:
    """A `on_wait` that ends the wait after some time."""
    end = time.monotonic() + seconds

    def on_wait(_: object) -> None:
        assert time.monotonic() < end

    return on_wait


def test_what_is_known_before_the_first_item(workshop: Workshop, make_ahead: Make) -> None:
    """After the lookup it is known how many kernels are to build, and which device's are not needed after all."""
    first = make_ahead(2)
    sources = workshop.sources("a", "b", "c")
    first.result(sources[0])
    holds = [workshop.hold("b"), workshop.hold("c")]
    ahead = make_ahead(1)
    ahead.add(sources)
    progress = ahead.looked_up(20.0)
    assert (progress.cached, progress.waiting + len(progress.running)) == (1, 2)
    until(lambda: workshop.begun == ["a", "b"])
    ahead.forget("cpu")
    for hold in holds:
        hold.unlink()
    until(lambda: ahead.progress().done)
    assert workshop.begun == ["a", "b"]
