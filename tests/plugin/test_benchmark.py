"""pytest-benchmark's records of timed cases and callables: what is written, compared, shown, and left out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from pytest_cgins.app.session import benchmark, run
from pytest_cgins.app.session.benchmark_records import BenchmarkRecords
from pytest_cgins.core import documents
from pytest_cgins.core.measurement import Arm, ArmName, Measurement
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Reason, Status

# pytester forgets what a run imported, and C extensions do not bear a second import: these come in beforehand.
IMPORTED = (benchmark, run, yaml)
Make = Callable[..., Evaluation]

CONFIG = """\
version: 1
traces: [traces/tiny]
kernels:
  scale: {op: torch.nn.functional.gelu, source: kernels/scale.cpp}
"""
CONFTEST = """
import json
from pathlib import Path

import pytest
from pytest_cgins.core import documents
from pytest_cgins.gate.case_processes import CaseProcesses
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.core.session_report import Environment, Evaluation

HERE = Path(__file__).parent
PATCH = pytest.MonkeyPatch()


def pytest_configure(config):
    found = [documents.load_python(Evaluation, one) for one in json.loads((HERE / "found.json").read_text())]
    by_name = {one.case.name: one for one in found}
    cpu = Environment(device="cpu", device_name="An x86", python="3", torch="2")
    PATCH.setattr(Evaluator, "cases", lambda self: tuple(one.case for one in found))
    PATCH.setattr(Evaluator, "evaluate", lambda self, case, *, upcoming=None: by_name[case.name])
    PATCH.setattr(Evaluator, "build_ahead", lambda self, cases: None)
    PATCH.setattr(CaseProcesses, "warm", lambda self: None)  # pytester has a HOME a test: each would import torch anew
    PATCH.setattr(Evaluator, "environments", lambda self: (cpu,))


def pytest_unconfigure(config):
    PATCH.undo()


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_generate_machine_info():
    return {"node": "here"}  # finding out takes a second


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_generate_commit_info():
    return {"id": "0"}
"""
CASE = "scale/cpu-cpp/tiny/f32-2x3-0001"
NODE = f"cgins.yaml::{CASE}"
REVISION = "1a2b3c4d5e" + "0" * 30
USER_TEST = "def test_own(cgins_case):\n    cgins_case.assert_ok()\n"


def arm(name: ArmName, *samples_ns: float, calls: int = 10) -> Arm:
    return Arm(
        name=name,
        samples_ns_per_call=samples_ns,
        calls_per_batch=calls,
        median_ns_per_call=sorted(samples_ns)[len(samples_ns) // 2],
        iqr_ns_per_call=0.0,
    )


def measurement(*arms: Arm, **changes: Any) -> Measurement:
    by_name = {one.name: one for one in arms}
    values: dict[str, Any] = {
        "method": "perf-counter",
        "cache": "warm",
        "orders": "TKBBKT",
        "kernel": by_name["kernel"],
        "torch": by_name["torch"],
        "base": by_name.get("base"),
        "compiled": by_name.get("compile"),
        "base_revision": REVISION if "base" in by_name else "",
        "speedup_vs_torch": 2.0,
        "speedup_low": 1.9,
        "speedup_high": 2.1,
    }
    return Measurement(**values | changes)


TWO_ARMS = measurement(arm("kernel", 1000.0, 1010.0, 990.0), arm("torch", 2000.0, 2020.0, 1980.0, calls=5))
FOUR_ARMS = measurement(
    *(arm("kernel", 1000.0, 1010.0), arm("base", 900.0, 910.0), arm("torch", 2000.0), arm("compile", 1500.0))
)


class Project:
    """A folder whose `cgins.yaml` has cases, and what the gate finds of them."""

    def __init__(self, pytester: pytest.Pytester, make: Make) -> None:
        self._pytester = pytester
        self._make = make
        (pytester.path / "kernels").mkdir()
        (pytester.path / "traces" / "tiny").mkdir(parents=True)
        (pytester.path / "kernels" / "scale.cpp").touch()
        (pytester.path / "cgins.yaml").write_text(CONFIG)
        (pytester.path / "pytest.ini").write_text("[pytest]\n")
        pytester.makeconftest(CONFTEST)
        self.finds(TWO_ARMS)

    def finds(self, *measurements: Measurement | None, **verdict: Any) -> None:
        """One case a measurement, all with the verdict that `make_evaluation` makes of the rest."""
        found = [
            replace(self._make(signature=f"f32-2x3-{number:04}", **verdict), measurement=one)
            for number, one in enumerate(measurements, 1)
        ]
        text = json.dumps([documents.dump_python(one) for one in found])
        (self._pytester.path / "found.json").write_text(text)

    def test(self, text: str) -> None:
        (self._pytester.path / "test_own.py").write_text(text)

    def run(self, *options: str, processes: bool = False) -> pytest.RunResult:
        words = ["--cgins", "-p", "no:cacheprovider", *options]
        run = self._pytester.runpytest_subprocess if processes else self._pytester.runpytest_inprocess
        return run(*words)

    def json(self, name: str = "out.json") -> Any:
        return json.loads((self._pytester.path / name).read_text())

    def written(self) -> bool:
        """Whether `--benchmark-json` has records; releases before 5.3 leave an empty file when there are none."""
        path = self._pytester.path / "out.json"
        return path.exists() and path.stat().st_size > 0

    def records(self, *options: str) -> dict[str, Any]:
        """Records of a run by their full names."""
        self.run("--benchmark-json=out.json", *options)
        found = self.json()["benchmarks"]
        names = [one["fullname"] for one in found]
        assert len(set(names)) == len(names)
        return dict(zip(names, found, strict=True))


@pytest.fixture
def project(pytester: pytest.Pytester, make_evaluation: Make, monkeypatch: pytest.MonkeyPatch) -> Project:
    for name in ("CI", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "300")
    return Project(pytester, make_evaluation)


# ---- what is written


def test_a_case_is_a_record(project: Project) -> None:
    """The record has the node id, each sample in seconds a call, the batch, and what the gate says of the case."""
    kernel = project.records()[NODE]
    assert (kernel["name"], kernel["group"], kernel["param"]) == (CASE, CASE, "tiny/f32-2x3-0001")
    assert kernel["stats"]["data"] == pytest.approx([1000e-9, 1010e-9, 990e-9], rel=1e-12)
    assert (kernel["stats"]["iterations"], kernel["stats"]["rounds"]) == (10, 3)
    assert kernel["stats"]["median"] == pytest.approx(1e-6)
    assert kernel["stats"]["ops"] == pytest.approx(1e6)
    assert kernel["extra_info"] == {
        "arm": "kernel",
        "status": "PASSED",
        "reason": "ok",
        "speedup_vs_torch": 2.0,
        "method": "perf-counter",
        "cache": "warm",
        "kernel_digest": "d" * 64,
        "base_revision": "",
    }
    assert kernel["params"]["implementation"] == "cpp"
    assert kernel["options"] == {"timer": "perf-counter"}


def test_each_arm_is_a_record_of_the_case_s_group(project: Project) -> None:
    """torch, torch.compile and the base revision stand beside the kernel; the base's name has its commit."""
    project.finds(FOUR_ARMS)
    records = project.records()
    assert [name.removeprefix(NODE) for name in records] == ["", "[base 1a2b3c4d5e]", "[torch]", "[compile]"]
    assert {one["group"] for one in records.values()} == {CASE}
    assert [one["params"]["arm"] for one in records.values()] == ["kernel", "base", "torch", "compile"]
    assert [one["stats"]["min"] for one in records.values()] == pytest.approx([1e-6, 9e-7, 2e-6, 1.5e-6])
    assert {one["extra_info"]["base_revision"] for one in records.values()} == {REVISION}


def test_a_confirmation_is_not_counted(project: Project) -> None:
    """Samples of a second process, taken because the first was slow, are in no record."""
    project.finds(replace(TWO_ARMS, confirmation=FOUR_ARMS), status=Status.SLOWER)
    records = project.records()
    assert sorted(records) == [NODE, f"{NODE}[torch]"]
    assert records[NODE]["stats"]["rounds"] == 3
    assert records[NODE]["extra_info"]["status"] == "SLOWER"


@pytest.mark.parametrize(
    ("status", "reason"),
    [(Status.INCORRECT, Reason.GOLD_MISMATCH), (Status.SUSPECT, Reason.TOO_FAST)],
)
def test_a_wrong_kernel_s_time_is_no_record(project: Project, status: Status, reason: Reason) -> None:
    """What gives wrong answers, or only seems right, may be as fast as it likes."""
    project.finds(TWO_ARMS, status=status, reason=reason)
    project.run("--benchmark-json=out.json", "--cgins-json=gate.json")
    assert not project.written()
    assert (
        len(project.json("gate.json")["evaluations"][0]["measurement"]["kernel"]["samples_ns_per_call"]) == 3
    )


def test_a_case_that_was_not_timed_is_no_record(project: Project) -> None:
    """Of two cases the one with times is recorded."""
    project.finds(TWO_ARMS, None)
    assert sorted(project.records()) == [NODE, f"{NODE}[torch]"]


def test_the_file_says_what_the_cases_ran_on(project: Project) -> None:
    """Devices and the seed are beside the records: pytest-benchmark's machine_info knows no GPU."""
    project.records("--cgins-seed=7")
    added = project.json()["cgins"]
    assert added["seed"] == 7
    assert [one["device_name"] for one in added["environments"]] == ["An x86"]


def test_a_user_s_test_of_a_case_is_a_record(project: Project) -> None:
    """It has its own node id; the case's own item is recorded apart."""
    project.test(USER_TEST)
    records = project.records()
    own = f"test_own.py::test_own[{CASE}]"
    assert sorted(records) == sorted([NODE, f"{NODE}[torch]", own, f"{own}[torch]"])
    assert records[own]["group"] == CASE


def test_a_marker_s_group_is_kept(project: Project) -> None:
    """`@pytest.mark.benchmark(group=…)` holds for records of a case as for any."""
    project.test("import pytest\n@pytest.mark.benchmark(group='mine')\n" + USER_TEST)
    assert project.records("test_own.py")[f"test_own.py::test_own[{CASE}]"]["group"] == "mine"


def test_a_case_evaluated_twice_in_one_test_is_two_records(project: Project) -> None:
    """The second has a number after its name, so that both can be compared."""
    project.test("def test_own(cgins_case):\n    cgins_case.evaluate()\n    cgins_case.evaluate()\n")
    names = [name.partition("]")[2] for name in project.records("test_own.py")]
    assert names == ["", "[torch]", "#2", "[torch]#2"]


# ---- what is compared


def slower(by: float, *, torch_by: float = 1.0) -> Measurement:
    kernel = [sample * by for sample in TWO_ARMS.kernel.samples_ns_per_call]
    eager = [sample * torch_by for sample in TWO_ARMS.torch.samples_ns_per_call]
    return measurement(arm("kernel", *kernel), arm("torch", *eager))


@pytest.mark.exam
@pytest.mark.parametrize("how", ["--benchmark-autosave", "--benchmark-save=first"])
def test_a_stored_run_is_compared_with(project: Project, how: str) -> None:
    """The kernel of now stands beside the stored kernel of the same case, torch beside torch."""
    project.run(how)
    project.finds(slower(1.5))
    found = project.run("--benchmark-compare", "--benchmark-columns=median", "--benchmark-time-unit=us")
    table = found.stdout.str()
    rows = re.findall(rf"^{re.escape(CASE)}(\S*) \((NOW|0001)\S*\) +([\d,.]+)", table, re.MULTILINE)
    assert sorted(rows) == [
        *[("", "0001", "1.0000"), ("", "NOW", "1.5000")],
        *[("[torch]", "0001", "2.0000"), ("[torch]", "NOW", "2.0000")],
    ]


@pytest.mark.exam
@pytest.mark.parametrize(
    ("now", "fails"),
    [(slower(1.5), True), (slower(1.0, torch_by=1.5), False), (slower(1.02), False)],
    ids=["kernel", "torch", "little"],
)
def test_only_the_kernel_can_fail_a_comparison(project: Project, now: Measurement, fails: bool) -> None:
    """`--benchmark-compare-fail` fires for a slower kernel, not for a slower torch."""
    project.run("--benchmark-autosave")
    project.finds(now)
    found = project.run("--benchmark-compare", "--benchmark-compare-fail=median:5%")
    said = found.stdout.str() + found.stderr.str()
    assert ("Performance has regressed" in said) is fails
    assert (found.ret != 0) is fails
    assert "[torch]" not in said.rpartition("Performance has regressed")[2] or not fails


@pytest.mark.exam
def test_a_zero_in_the_stored_run_fails_no_other_arm(project: Project) -> None:
    """A stored spread of 0, as of two equal samples, fails what pytest-benchmark checks: torch is not checked."""
    project.finds(measurement(arm("kernel", 1000.0, 1100.0), arm("torch", 2000.0, 2000.0)))
    project.run("--benchmark-autosave")
    project.finds(measurement(arm("kernel", 1000.0, 1100.0), arm("torch", 2000.0, 2100.0)))
    found = project.run("--benchmark-compare", "--benchmark-compare-fail=stddev:5%")
    assert found.ret == 0, found.stdout.str()


@pytest.mark.exam
def test_a_user_s_own_benchmark_is_checked_as_ever(project: Project) -> None:
    """Sparing torch's times spares no benchmark of the user's."""
    body = "def test_own(benchmark):\n    benchmark.pedantic(time.sleep, args=({},), rounds=3)\n"
    project.test("import time\n" + body.format(0.001))
    project.run("--benchmark-autosave")
    project.test("import time\n" + body.format(0.02))
    found = project.run("--benchmark-compare", "--benchmark-compare-fail=min:90%")
    assert found.ret != 0
    regressed = (found.stdout.str() + found.stderr.str()).rpartition("Performance has regressed:")[2]
    assert "test_own" in regressed
    assert CASE not in regressed


# ---- what is shown


@pytest.mark.exam
def test_the_table_stays_away_unless_asked_for(project: Project) -> None:
    """The gate has a table of its own: hundreds of cases get a second one only with an option for records."""
    assert "benchmark '" not in project.run().stdout.str()
    assert "benchmark '" not in project.run("--benchmark-sort=mean", "--benchmark-columns=min").stdout.str()
    assert f"benchmark '{CASE}': 2 tests" in project.run("--benchmark-only").stdout.str()


@pytest.mark.parametrize(
    ("group_by", "title"),
    [
        ("func", CASE),
        ("param", "tiny/f32-2x3-0001"),
        ("param:kernel,param:arm", "kernel=scale arm=torch"),
        ("fullname", f"{NODE}[[]torch]"),
    ],
)
def test_groups_are_chosen(project: Project, group_by: str, title: str) -> None:
    """`--benchmark-group-by` finds names, the trace, and each field of the case as a parameter."""
    found = project.run("--benchmark-only", f"--benchmark-group-by={group_by}")
    found.stdout.fnmatch_lines([f"* benchmark '{title}': * tests *"])


@pytest.mark.exam
@pytest.mark.skipif(find_spec("pygal") is None, reason="needs pygal")
def test_a_histogram_is_drawn_of_each_case(project: Project, pytester: pytest.Pytester) -> None:
    """`--benchmark-histogram` makes one picture a case, with its arms side by side."""
    project.finds(TWO_ARMS, FOUR_ARMS)
    project.run("--benchmark-histogram=plots/gate", processes=True)  # pygal leaves its mark on imports
    drawn = {path.name: path.read_text() for path in (pytester.path / "plots").iterdir()}
    assert sorted(drawn) == [f"gate-scale_cpu-cpp_tiny_f32-2x3-000{n}.svg" for n in (1, 2)]
    assert "[torch]" in drawn["gate-scale_cpu-cpp_tiny_f32-2x3-0001.svg"]
    assert "[base 1a2b3c4d5e]" in drawn["gate-scale_cpu-cpp_tiny_f32-2x3-0002.svg"]


# ---- what runs


PLAIN_TESTS = """
def test_plain(): pass
def test_bench(benchmark): benchmark.pedantic(lambda: None, rounds=2)
def test_timer(cgins_benchmark): pass
"""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], {"passed": 4}),
        (["--benchmark-only"], {"passed": 3, "skipped": 1}),
        (["--benchmark-only", "--cgins-no-timing"], {"passed": 2, "skipped": 2}),
        (["--benchmark-skip"], {"passed": 2, "skipped": 2}),
        (["--benchmark-skip", "--benchmark-only"], {"passed": 3, "skipped": 1}),
    ],
    ids=" ".join,
)
def test_what_counts_as_a_benchmark(project: Project, options: list[str], expected: dict[str, int]) -> None:
    """Timed cases are benchmarks to `--benchmark-only`; `--benchmark-skip` switches no gate off."""
    project.test(PLAIN_TESTS)
    found = project.run(*options).parseoutcomes()
    assert {key: count for key, count in found.items() if key in ("passed", "skipped", "failed")} == expected


def test_a_user_s_own_skip_stays(project: Project) -> None:
    """`--benchmark-only` takes back the skip of pytest-benchmark and no other."""
    project.test("import pytest\n@pytest.mark.skip(reason='mine')\n" + USER_TEST)
    project.run("--benchmark-only", "test_own.py").assert_outcomes(skipped=1)


@pytest.mark.parametrize(
    "off",
    [["-p", "no:benchmark"], ["--benchmark-disable", "--benchmark-json=out.json"], ["--benchmark-skip"]],
    ids=" ".join,
)
def test_without_pytest_benchmark_all_else_works(project: Project, off: list[str]) -> None:
    """Absent, disabled or skipping: no record and no warning, and the gate's JSON has every sample."""
    found = project.run("-v", "-W", "error", "--cgins-json=gate.json", *off)
    assert found.ret == 0, found.stdout.str()
    assert "warning" not in (found.stdout.str() + found.stderr.str()).lower()
    assert not project.written()
    (evaluation,) = project.json("gate.json")["evaluations"]
    assert evaluation["measurement"]["kernel"]["samples_ns_per_call"] == [1000.0, 1010.0, 990.0]
    assert evaluation["measurement"]["torch"]["samples_ns_per_call"] == [2000.0, 2020.0, 1980.0]


@pytest.mark.exam
def test_under_xdist_the_gate_s_json_has_it_all(project: Project) -> None:
    """pytest-benchmark switches itself off: a line says so, and every sample of all workers is in our document."""
    pytest.importorskip("xdist")
    project.finds(TWO_ARMS, FOUR_ARMS)
    options = ["-n2", "-W", "error", "--benchmark-json=out.json", "--cgins-json=gate.json"]
    found = project.run(*options, processes=True)
    assert found.ret == 0, found.stdout.str()
    found.stdout.fnmatch_lines(
        ["cgins: pytest-benchmark keeps no records under xdist, so --benchmark-json will *"]
    )
    assert not project.written()
    taken = [one["measurement"] for one in project.json("gate.json")["evaluations"]]
    assert [len(one["kernel"]["samples_ns_per_call"]) for one in taken] == [3, 2]
    assert taken[1]["base"]["samples_ns_per_call"] == [900.0, 910.0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"benchmark_json": "x", "dist": "no"}, ""),
        ({"benchmark_json": "x"}, ""),
        ({"benchmark_json": None, "dist": "load"}, ""),
        (
            {"benchmark_json": "x", "benchmark_compare_fail": ["y"], "dist": "load"},
            "--benchmark-json and --benchmark-compare-fail",
        ),
    ],
)
def test_xdist_is_told_of_only_where_records_were_asked_for(options: dict[str, Any], said: str) -> None:
    """Neither without xdist nor without an option for records is there a line about pytest-benchmark."""
    gate: Any = SimpleNamespace(config=SimpleNamespace(getoption=options.get))
    line = "".join(BenchmarkRecords(gate).pytest_report_header())
    assert bool(line) is bool(said)
    assert said in line


# ---- cgins_benchmark


TIMINGS = """
import time

import pytest

def test_timer(cgins_benchmark):
    slow = cgins_benchmark(time.sleep, 0.002, budget_s=0.02)
    quick = cgins_benchmark(lambda: None, budget_s=0.005)
    assert (slow.device, slow.method) == ("cpu", "perf-counter")
    assert len(slow.samples_ns_per_call) >= 6
    assert quick.median_ns_per_call < 2e6 <= slow.median_ns_per_call

@pytest.mark.benchmark(group="mine")
@pytest.mark.parametrize("n", [3])
def test_grouped(cgins_benchmark, n):
    cgins_benchmark(sum, range(n), budget_s=0.005)
"""


def test_a_timed_callable_is_a_record(project: Project) -> None:
    """Each call of `cgins_benchmark` makes one: its second in a test has a number, a marker's group is kept."""
    project.test(TIMINGS)
    records = project.records("test_own.py")
    assert sorted(records) == [f"test_own.py::test_{name}" for name in ("grouped[3]", "timer", "timer#2")]
    slow = records["test_own.py::test_timer"]
    assert 2e-3 <= slow["stats"]["min"] < 1
    assert slow["stats"]["rounds"] == len(slow["stats"]["data"]) >= 6
    assert slow["extra_info"] == {"method": "perf-counter", "cache": "warm", "device": "cpu"}
    grouped = records["test_own.py::test_grouped[3]"]
    assert (grouped["group"], grouped["params"], slow["group"]) == ("mine", {"n": 3}, None)


def test_a_timed_callable_is_in_the_table(project: Project) -> None:
    """It is a benchmark of the user's, so it is shown without being asked for, unlike cases."""
    project.test(TIMINGS)
    shown = project.run().stdout.str()
    assert re.search(r"^test_timer#2 ", shown, re.MULTILINE)
    assert f"'{CASE}'" not in shown


def test_a_callable_is_timed_where_records_are_off(project: Project) -> None:
    """A test gets its Timing whether or not pytest-benchmark is there."""
    project.test(TIMINGS)
    for off in (["-p", "no:benchmark"], ["--benchmark-disable"]):
        project.run("test_own.py", *off).assert_outcomes(passed=2)


VERIFIES = """
import time
from pathlib import Path
from pytest_cgins.timing import lock
with lock.verifying("cpu", wait_s=60):
    Path("held").touch()
    time.sleep(0.3)
"""
BESIDE_A_COMPILER = f"""
import sys
import time
from pathlib import Path

from pytest_cgins.app.session.run import GateSession
from pytest_cgins.building.compilers.process import run_stages

def test_timer(request, cgins_benchmark):
    command = [sys.executable, "-c", {VERIFIES!r}]
    compile_ = lambda: run_stages([[command]], Path.cwd(), "JIT compiler", time.monotonic() + 60)
    GateSession.of(request.config).builds.ahead.employ(compile_)
    while not Path("held").exists():
        time.sleep(0.01)
    cgins_benchmark(sum, [1], budget_s=0.005)
"""


def test_a_compiler_that_holds_the_device_is_waited_for(project: Project) -> None:
    """JIT compilers verify on it; one that was suspended before would never give it back."""
    project.test(BESIDE_A_COMPILER)
    project.run("test_own.py", "--cgins-timeout=20").assert_outcomes(passed=1)
