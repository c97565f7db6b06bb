"""One case from build to verdict, through real workers."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch

import pytest_cgins
from pytest_cgins.config import load
from pytest_cgins.core.errors import ConfigError, InfrastructureError, TraceError
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.gate import cases as cases_module
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.gate.timing_stage import TimingOptions
from pytest_cgins.packs import ops
from pytest_cgins.run.early_verdict import EndedError
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.timing.devices.cpu import Cpu
from pytest_cgins.timing.lock import timing, verifying

LAUNCHER = """\
// cgins: relu(Tensor input) -> Tensor
#include <cgins.h>
extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(input), "contiguous tensors only");
  const float* x = cgins::data<float>(input);
  for (int64_t i = 0; i < cgins::numel(input); ++i) cgins::data<float>(out)[i] = x[i] < 0 ? 0 : x[i];
  return 0;
}
"""
PAST_THE_END = LAUNCHER.replace("return 0;", "cgins::data<float>(out)[cgins::numel(out)] = 1; return 0;")
CRASHES = LAUNCHER.replace("return 0;", "*(volatile int*)0 = 0; return 0;")
KERNELS = """\
import torch
import pytest_cgins.core.errors

def right(input):
    return input.clamp_min(0)

def raises(input):
    width = input.shape[-1]
    raise ValueError(f"no such width: {width}")

class ContractError(BaseException):
    pass

def excuses_itself(input):
    raise ContractError("not my contract")

def borrows_the_excuse(input):
    raise pytest_cgins.core.errors.ContractError("not my contract")

calls = 0

def tires(input):
    global calls
    calls += 1
    if calls > 2000:
        raise RuntimeError("tired")
    return input.clamp_min(0)

def misspells(input, inplcae=False):
    return input.clamp_min(0)

def of_something_else(width, height, depth):
    return width
"""
SPOILS = """\
import ctypes
import math
import os
import resource

import table

def patch_math(input):
    math.exp = lambda x: 2.0
    return input.clamp_min(0)

def set_variable(input):
    os.environ["RELU_SCALE"] = "2"
    return input.clamp_min(0)

def change_table(input):
    table.SCALE = 2
    return input.clamp_min(0)

def limit_memory(input):
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (4096 * pages + (32 << 20),) * 2)
    return input.clamp_min(0)

def overwrite_expf(input):
    libc, libm = ctypes.CDLL(None), ctypes.CDLL("libm.so.6")
    address = ctypes.cast(libm.expf, ctypes.c_void_p).value
    page = address & ~4095
    libc.mprotect(ctypes.c_void_p(page), 8192, 7)
    ctypes.memmove(address, b"\\xc3", 1)  # returns what it was given
    return input.clamp_min(0)
"""
CAREFUL = """\
import ctypes
import math
import os

import table
import torch

expf = ctypes.CDLL("libm.so.6").expf
expf.restype, expf.argtypes = ctypes.c_float, [ctypes.c_float]

def relu(input):
    torch.empty(1 << 24)
    scale = float(os.environ.get("RELU_SCALE", "1")) * table.SCALE * math.exp(0.0) * expf(0.0)
    return input.clamp_min(0) * scale
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a pack of two relu calls, and kernels good and bad."""
    folder = tmp_path_factory.mktemp("evaluate")
    with pytest_cgins.record(folder / "traces/tiny", ops=["torch.nn.functional.relu"]):
        torch.nn.functional.relu(torch.randn(6, 40))
    (folder / "bad_kernels.py").write_text(KERNELS)
    (folder / "relu.cpp").write_text(LAUNCHER)
    (folder / "past.cpp").write_text(PAST_THE_END)
    (folder / "crash.cpp").write_text(CRASHES)
    (folder / "code7.cpp").write_text(LAUNCHER.replace("return 0;", "return 7;"))
    (folder / "wrong_name.cpp").write_text(
        LAUNCHER.replace("Tensor input)", "Tensor inptu)")
        .replace("* input", "* inptu")
        .replace("(input)", "(inptu)")
    )
    return folder


def configure(folder: Path, implementation: str, traces: str = "[traces/tiny]") -> Path:
    """Write cgins.yaml with one kernel of one implementation."""
    file = folder / "cgins.yaml"
    file.write_text(
        f"version: 1\ntraces: {traces}\nkernels:\n"
        f"  relu: {{op: torch.nn.functional.relu, implementations: [{{name: one, {implementation}}}]}}\n"
    )
    return file


class Evaluators:
    """Makes evaluators with workers of their own, but for the trusted one."""

    def __init__(self, reference: WorkerPool) -> None:
        self._reference = reference
        self.made: list[Evaluator] = []

    def make(self, file: Path, *, timing: bool = False) -> Evaluator:
        made = Evaluator(load(file), seed=3, timing=timing, reference=self._reference)
        self.made.append(made)
        return made


@pytest.fixture
def evaluators(reference: WorkerPool) -> Iterator[Evaluators]:
    """Evaluators that are closed when the test ends."""
    makes = Evaluators(reference)
    yield makes
    for evaluator in makes.made:
        evaluator.close()


def evaluate(
    project: Path, evaluators: Evaluators, implementation: str, *, timing: bool = False
) -> Evaluation:
    """Evaluate the only case of one implementation."""
    evaluator = evaluators.make(configure(project, implementation), timing=timing)
    (case,) = evaluator.cases()
    return evaluator.evaluate(case)


def python(name: str) -> str:
    return f"device: cpu, target: 'bad_kernels:{name}'"


def test_a_build_is_told_with_the_first_case(
    project: Path, evaluators: Evaluators, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the kernel was asked for before, as to see whether its base revision is timed apart."""
    monkeypatch.setenv("CGINS_CACHE_DIR", str(tmp_path))
    evaluator = evaluators.make(configure(project, "source: relu.cpp"))
    (case,) = evaluator.cases()
    took = evaluator.compiled(case).build_seconds
    assert took > 0
    assert [evaluator.evaluate(case).build_seconds for _ in range(2)] == [took, 0]


@pytest.mark.exam
def test_a_right_kernel_passes_with_numbers(project: Path, evaluators: Evaluators) -> None:
    """Built, verified and timed: the verdict's numbers are those of its parts."""
    found = evaluate(project, evaluators, "source: relu.cpp", timing=True)
    assert found.verdict.status is Status.PASSED, found.verdict.message
    assert found.measurement is not None
    assert found.correctness is not None
    assert found.verdict.numbers["speedup_vs_torch"] == found.measurement.speedup_vs_torch
    assert found.verdict.numbers["error_share_of_tolerance"] == found.correctness.share


@pytest.mark.exam
@pytest.mark.parametrize("name", ["excuses_itself", "borrows_the_excuse"])
def test_a_kernel_cannot_excuse_itself(project: Path, evaluators: Evaluators, name: str) -> None:
    """An error named ContractError that the kernel raises is its failure, not a skip."""
    found = evaluate(project, evaluators, python(name))
    assert (found.verdict.status, found.verdict.reason) == (Status.RUNTIME_ERROR, Reason.RAISED)
    assert "not my contract" in found.verdict.message


def test_an_exception_is_shown_with_its_own_lines(project: Path, evaluators: Evaluators) -> None:
    """The message names the inputs and the exception, the output the user's lines and none of ours."""
    found = evaluate(project, evaluators, python("raises"))
    assert "on the recorded inputs" in found.verdict.message
    assert "no such width: 40" in found.verdict.message
    assert "bad_kernels.py" in found.output
    assert "pytest_cgins/run" not in found.output


def test_an_error_code_comes_with_its_remedy(project: Path, evaluators: Evaluators) -> None:
    """A launcher that returns 7 without a message is told how to say why."""
    found = evaluate(project, evaluators, "source: code7.cpp")
    assert (found.verdict.status, found.verdict.reason) == (Status.RUNTIME_ERROR, Reason.ERROR_CODE)
    assert "returned 7" in found.verdict.message
    assert "cgins_fail" in found.verdict.message


def test_a_schema_of_another_op_is_a_build_error(project: Path, evaluators: Evaluators) -> None:
    """A schema argument that the op does not have is found before the kernel runs, with the right name."""
    found = evaluate(project, evaluators, "source: wrong_name.cpp")
    assert (found.verdict.status, found.verdict.reason) == (Status.BUILD_ERROR, Reason.SOURCE)
    assert "'inptu'" in found.verdict.message
    assert 'did you mean "input"?' in found.verdict.message


def test_a_signature_of_another_op_is_a_build_error(project: Path, evaluators: Evaluators) -> None:
    """A Python target that takes more than the op passes is refused as it is bound."""
    found = evaluate(project, evaluators, python("of_something_else"))
    assert found.verdict.status is Status.BUILD_ERROR, found.verdict.message
    assert "bad_kernels:of_something_else" in found.verdict.message


def test_a_misspelt_parameter_is_a_build_error(project: Path, evaluators: Evaluators) -> None:
    """A parameter with a default that is nearly the op's own is a mistake, not a tuning knob."""
    found = evaluate(project, evaluators, python("misspells"))
    assert found.verdict.status is Status.BUILD_ERROR, found.verdict.message
    assert 'did you mean "inplace"?' in found.verdict.message


def test_a_missing_backend_is_no_fault_of_the_kernel(project: Path, evaluators: Evaluators) -> None:
    """A package of a backend that is not installed is told with its install, as a tool that is missing."""
    (project / "needs_a_backend.py").write_text("import tilelang\ndef relu(input): ...\n")
    found = evaluate(project, evaluators, "device: cpu, target: 'needs_a_backend:relu'")
    assert (found.verdict.status, found.verdict.reason) == (Status.INFRASTRUCTURE, Reason.TOOL_MISSING)
    assert '"tilelang" is not installed' in found.verdict.message
    assert "→ pip install tilelang" in found.verdict.message


@pytest.mark.exam
def test_a_write_past_the_end_is_found_and_costs_its_own_case_only(
    project: Path, evaluators: Evaluators, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard behind an output names the kernel that wrote there, whatever the user's environment says."""
    monkeypatch.setenv("CGINS_BARE_OUTPUTS", "1")
    found = evaluate(project, evaluators, "source: past.cpp")
    assert (found.verdict.status, found.verdict.reason) == (Status.INCORRECT, Reason.OUT_OF_BOUNDS)
    assert "behind output 0 were overwritten" in found.verdict.message


def test_a_crash_is_blamed_on_the_kernel_that_crashes(project: Path, evaluators: Evaluators) -> None:
    """A segmentation fault ends the case, by name, and the worker is replaced."""
    found = evaluate(project, evaluators, "source: crash.cpp")
    assert (found.verdict.status, found.verdict.reason) == (Status.RUNTIME_ERROR, Reason.CRASHED)
    assert "SIGSEGV" in found.verdict.message


@pytest.mark.exam
def test_a_death_in_a_process_with_a_past_is_told(project: Path, evaluators: Evaluators) -> None:
    """No other kernel ran there, so that it is this one's, though every part of it is answered in a fresh process."""
    evaluator = evaluators.make(configure(project, "source: relu.cpp"))
    (case,) = evaluator.cases()
    assert evaluator.evaluate(case).verdict.status is Status.PASSED
    worker = evaluator.pool._workers["verification"]
    pool_call = evaluator.pool.call

    def call(role: str, *rest: Any, **options: Any) -> Any:
        if role == "verification" and worker.alive:
            os.kill(worker.pid, signal.SIGSTOP)
            threading.Timer(0.3, os.kill, (worker.pid, signal.SIGKILL)).start()
        return pool_call(role, *rest, **options)

    evaluator.pool.call = call  # type: ignore[method-assign]
    verdict = evaluator.evaluate(case).verdict
    assert verdict.status is Status.RUNTIME_ERROR
    assert verdict.message.startswith("on all sets of inputs in one process, not in parts: ")


@pytest.mark.exam
@pytest.mark.parametrize(
    "act", ["patch_math", "set_variable", "change_table", "limit_memory", "overwrite_expf"]
)
def test_what_a_kernel_leaves_behind_is_not_found_by_the_next(
    tmp_path: Path, evaluators: Evaluators, act: str
) -> None:
    """Patched modules, variables, limits and machine code end with the process of the kernel that changed them."""
    with pytest_cgins.record(tmp_path / "traces/tiny", ops=["torch.nn.functional.relu"]):
        torch.nn.functional.relu(torch.randn(6, 40))
    (tmp_path / "table.py").write_text("SCALE = 1\n")
    (tmp_path / "spoils.py").write_text(SPOILS)
    (tmp_path / "careful.py").write_text(CAREFUL)
    (tmp_path / "cgins.yaml").write_text(
        "version: 1\ntraces: [traces/tiny]\nkernels:\n"
        f"  spoils: {{op: torch.nn.functional.relu, device: cpu, target: 'spoils:{act}'}}\n"
        "  honest: {op: torch.nn.functional.relu, device: cpu, target: 'careful:relu'}\n"
    )
    evaluator = evaluators.make(tmp_path / "cgins.yaml")
    spoils, honest = evaluator.cases()
    evaluator.evaluate(spoils)
    found = evaluator.evaluate(honest)
    assert found.verdict.status is Status.PASSED, found.verdict.message


@pytest.mark.exam
def test_a_kernel_that_spoils_its_own_later_cases_is_told_so(tmp_path: Path, evaluators: Evaluators) -> None:
    """What is wrong with a past and right without one stays wrong, and the note says that the kernel keeps something."""
    with pytest_cgins.record(tmp_path / "traces/tiny", ops=["torch.nn.functional.relu"]):
        torch.nn.functional.relu(torch.randn(6, 40))
        torch.nn.functional.relu(torch.randn(6, 50))
    (tmp_path / "keeps.py").write_text(
        "seen = set()\n\n"
        "def relu(input):\n"
        "    seen.add(40 if input.shape[-1] == 40 else 50 if input.shape[-1] == 50 else 0)\n"
        "    return input.clamp_min(0) + ({40, 50} <= seen)\n"
    )
    (tmp_path / "cgins.yaml").write_text(
        "version: 1\ntraces: [traces/tiny]\nkernels:\n"
        "  keeps: {op: torch.nn.functional.relu, device: cpu, target: 'keeps:relu'}\n"
    )
    evaluator = evaluators.make(tmp_path / "cgins.yaml")
    first, second = (evaluator.evaluate(case) for case in evaluator.cases())
    assert first.verdict.status is Status.PASSED
    assert second.verdict.status is Status.INCORRECT
    assert second.correctness is not None
    assert any("it keeps something between calls" in note for note in second.correctness.notes)


@pytest.mark.exam
@pytest.mark.parametrize(("width", "is_older"), [(1024, True), (10**9, False)], ids=["wrong", "right"])
def test_a_fault_that_the_base_has_as_well_is_said_to_be_older(
    tmp_path: Path, reference: WorkerPool, width: int, is_older: bool
) -> None:
    """Drawn sizes may show today what has long been wrong: the base is run on the same ones."""

    def write(width: int) -> None:
        text = f"def relu(input):\n    return input.clamp_min(0) + (input.shape[-1] >= {width})\n"
        (tmp_path / "wide.py").write_text(text)

    with pytest_cgins.record(tmp_path / "traces/tiny", ops=["torch.nn.functional.relu"]):
        torch.nn.functional.relu(torch.randn(6, 40))
    (tmp_path / "cgins.yaml").write_text(
        "version: 1\ntraces: [traces/tiny]\nkernels:\n"
        "  wide: {op: torch.nn.functional.relu, device: cpu, target: 'wide:relu'}\n"
    )
    write(width)
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "as it is")):
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True)
    write(1000)
    options = TimingOptions(baseline="HEAD")
    evaluator = Evaluator(load(tmp_path / "cgins.yaml"), seed=3, timing_options=options, reference=reference)
    try:
        found = evaluator.evaluate(evaluator.cases()[0])
    finally:
        evaluator.close()
    assert found.verdict.reason is Reason.SIZE_DEPENDENT
    assert ("the fault is older than the change" in found.verdict.message) is is_older


@pytest.mark.exam
def test_what_was_verified_survives_a_failure_while_timed(project: Path, evaluators: Evaluators) -> None:
    """A kernel that raises only in the timing loop fails, and its correctness stays in the report."""
    found = evaluate(project, evaluators, python("tires"), timing=True)
    assert found.verdict.status is Status.RUNTIME_ERROR
    assert found.verdict.message.startswith("right, but while it was timed: ")
    assert "tired" in found.verdict.message
    assert found.correctness is not None
    assert found.correctness.passed


@pytest.mark.exam
@pytest.mark.parametrize(
    ("gate", "role"), [("", "timing/ungated"), (", gate: {floor_vs_torch: 0.001}", "timing")]
)
def test_what_is_compared_is_timed_in_a_program_of_its_own(
    project: Path, evaluators: Evaluators, gate: str, role: str
) -> None:
    """A kernel that no test compares with anything is timed in a fork, which costs a second less."""
    file = configure(project, python("right"))
    file.write_text(file.read_text().replace("]}", f"]{gate}}}"))
    evaluator = evaluators.make(file, timing=True)
    evaluator.evaluate(evaluator.cases()[0])
    assert {name for name in evaluator.pool._workers if name.startswith("timing")} == {role}


@pytest.mark.exam
@pytest.mark.parametrize("comes", [True, False])
def test_the_upcoming_case_is_prepared_while_a_kernel_is_verified(
    project: Path, evaluators: Evaluators, monkeypatch: pytest.MonkeyPatch, comes: bool
) -> None:
    """What is prepared ahead is taken by the case that it is for, and forgotten where another one comes."""
    file = configure(project, python("right"))
    file.write_text(file.read_text().replace("]}", f", {{name: two, {python('raises')}}}]}}"))
    evaluator = evaluators.make(file)
    first, second = evaluator.cases()
    asked: list[str] = []
    call = WorkerPool.call

    def noted(pool: WorkerPool, role: str, method: str, *rest: Any, **options: Any) -> Any:
        asked.append(method)
        return call(pool, role, method, *rest, **options)

    monkeypatch.setattr(WorkerPool, "call", noted)
    assert evaluator.evaluate(first, upcoming=second).verdict.status is Status.PASSED
    assert asked.count("prepare") == 2
    then = evaluator.evaluate(second if comes else first)
    assert then.verdict.status is (Status.RUNTIME_ERROR if comes else Status.PASSED)
    assert asked.count("prepare") == (2 if comes else 3)


@contextmanager
def timing_elsewhere() -> Iterator[None]:
    """Another thread times on the CPU; this one could take its own lock again."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with timing(Cpu().lock_key(), wait_s=60):
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(60)
        yield
    finally:
        done.set()
        thread.join()


def test_a_device_that_is_held_by_others_is_no_fault_of_the_kernel(
    project: Path, evaluators: Evaluators, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A case whose device is not to be had ends as an infrastructure error: one that nobody timed must not pass."""
    monkeypatch.setattr("pytest_cgins.timing.lock.WAIT_S", 0.2)
    with timing_elsewhere():
        found = evaluate(project, evaluators, python("right"), timing=True)
    assert (found.verdict.status, found.verdict.reason) == (Status.INFRASTRUCTURE, Reason.DEVICE_BUSY)
    assert found.measurement is None
    assert "timing" in found.verdict.message


def test_a_case_without_memory_has_the_device_alone(
    project: Path, evaluators: Evaluators, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three runs shared a GPU, and a large call of one left no room for torch's answers of another."""
    file = configure(project, python("right"))
    evaluator = evaluators.make(file)
    prepared, tries = evaluator.prepared, []

    def full_beside_others(*given: Any, **named: Any) -> Any:
        ours: list[str] = []

        def others() -> None:
            with suppress(InfrastructureError), verifying(Cpu().lock_key(), wait_s=0):
                ours.append("shared")

        thread = threading.Thread(target=others)
        thread.start()
        thread.join()
        tries.append((ours or ["alone"])[0])
        if ours:
            raise EndedError(Status.INFRASTRUCTURE, Reason.OUT_OF_MEMORY, "no memory is left")
        return prepared(*given, **named)

    monkeypatch.setattr(evaluator, "prepared", full_beside_others)
    case = evaluator.cases()[0]
    evaluator.pool.start("verification")
    before = evaluator.pool._workers["verification"]
    found = evaluator.evaluate(case)
    assert (found.verdict.status, tries) == (Status.PASSED, ["shared", "alone"])
    assert not before.alive, "what its own processes held is given back before it waits"

    @contextmanager
    def never(_: str) -> Iterator[None]:
        raise InfrastructureError("gave up timing on cpu", remedy="wait for them")
        yield

    monkeypatch.setattr(evaluator.stage, "alone_on", never)
    found = evaluator.evaluate(evaluator.cases()[0])
    assert (found.verdict.status, found.verdict.reason) == (Status.INFRASTRUCTURE, Reason.DEVICE_BUSY)
    assert found.verdict.message.startswith("gave up timing on cpu")


def test_an_absent_device_is_a_skip(project: Path, evaluators: Evaluators) -> None:
    """A CUDA case on a machine without a GPU is skipped before anything is built."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    (project / "relu.cu").write_text(LAUNCHER)
    found = evaluate(project, evaluators, "source: relu.cu")
    assert (found.verdict.status, found.verdict.reason) == (Status.SKIPPED, Reason.DEVICE_ABSENT)


def test_packs_of_one_name_are_refused(project: Path, tmp_path: Path) -> None:
    """Two packs with the same name would make cases with the same name: both folders are named."""
    folder = shutil.copytree(project, tmp_path / "copy")
    shutil.copytree(folder / "traces/tiny", folder / "traces/again")
    evaluator = Evaluator(load(configure(folder, "source: relu.cpp", "[traces/tiny, traces/again]")), seed=1)
    with pytest.raises(ConfigError, match="both named 'tiny'"):
        evaluator.cases()


def test_an_op_without_records_is_refused(project: Path, tmp_path: Path) -> None:
    """A kernel that no trace can gate is a configuration error that shows how to record its op."""
    folder = shutil.copytree(project, tmp_path / "copy")
    file = configure(folder, "source: relu.cpp")
    file.write_text(file.read_text().replace("functional.relu", "functional.gelu"))
    with pytest.raises(ConfigError) as caught:
        Evaluator(load(file), seed=1).cases()
    assert 'kernel "relu" replaces torch.nn.functional.gelu' in caught.value.what
    assert "cgins record SCRIPT.py --out traces/NAME --ops torch.nn.functional.gelu" in caught.value.remedy


@pytest.mark.parametrize(
    ("written", "recorded"),
    [
        ("torch.relu_", ["torch.nn.functional.relu_"]),
        ("torch.relu_@backward(self)", ["torch.nn.functional.relu_@backward(self)"]),
        ("torch.spmm", ["torch.mm"]),
        ("torch.relu", ["torch.Tensor.relu", "torch.nn.functional.relu"]),
    ],
)
def test_a_name_of_which_packs_have_another_is_told(written: str, recorded: list[str]) -> None:
    """torch has functions in two places, and packs one name for both: the remedy is the line to write."""
    others = ["torch.mul", "torch.nn.functional.relu_@backward(other)"]
    remedy = cases_module._how_to_have_traces(written, [*others, *recorded])
    assert remedy.startswith(f"write op: {' or op: '.join(recorded)}, which is recorded")
    assert f"--ops {written}; recorded are torch.mul" in cases_module._how_to_have_traces(written, others)


def test_a_misspelt_op_is_guessed() -> None:
    """By its last word, among those that are recorded."""
    remedy = cases_module._how_to_have_traces(
        "torch.nn.functional.silo", ["torch.mul", "torch.nn.functional.silu"]
    )
    assert remedy.startswith('did you mean "silu"? If not, record it: cgins record SCRIPT.py')


def test_every_second_name_of_torch_is_found_by_its_last_word() -> None:
    """Whatever public name a pack has under another, last words or the table of aliases lead to it."""
    spaces = {"torch": torch, "torch.nn.functional": torch.nn.functional, "torch.Tensor": torch.Tensor}
    found, missed = 0, []
    for space, namespace in spaces.items():
        # sym_int takes no tensors.
        names = {name for name in dir(namespace) if callable(getattr(namespace, name)) and name[0] != "_"}
        for name in names - {"sym_int"}:
            written = f"{space}.{name}"
            with suppress(TraceError):
                canonical = ops.qualified_name(ops.resolve(written))
                found += canonical != written
                same = cases_module._last_word(canonical) == cases_module._last_word(written)
                missed += [] if same else [(written, canonical)]
    assert found > 40
    assert missed == []


def test_a_damaged_blob_is_the_packs_fault(project: Path, tmp_path: Path, evaluators: Evaluators) -> None:
    """A flipped byte in a blob is an error with its own reason and the pack's own words."""
    folder = shutil.copytree(project, tmp_path / "copy")
    for blob in (folder / "traces/tiny/blobs").iterdir():
        content = bytearray(blob.read_bytes())
        content[-1] ^= 1
        blob.write_bytes(content)
    found = evaluate(folder, evaluators, "source: relu.cpp")
    assert (found.verdict.status, found.verdict.reason) == (Status.TRACE_DRIFT, Reason.PACK_DAMAGED)
    assert "worker" not in found.verdict.message
    assert not found.output


@pytest.mark.exam
@pytest.mark.parametrize(
    ("scale", "status"), [("1", Status.PASSED), ("1.25", Status.INCORRECT), ("0", Status.INCORRECT)]
)
def test_outputs_of_eight_bits(tmp_path: Path, evaluators: Evaluators, scale: str, status: Status) -> None:
    """torch does not tell of float8 numbers which are finite, nor which is the greatest."""
    with pytest_cgins.record(tmp_path / "traces/tiny", ops=["torch.Tensor.to"]):
        torch.randn(6, 40).to(torch.float8_e4m3fn)
    (tmp_path / "narrowing.py").write_text(
        "def to(self, dtype, non_blocking=False, copy=False, memory_format=None):\n"
        f"    return (self * {scale}).to(dtype)\n"
    )
    (tmp_path / "cgins.yaml").write_text(
        "version: 1\ntraces: [traces/tiny]\nkernels:\n"
        "  to: {op: torch.Tensor.to, target: 'narrowing:to', device: cpu, probes: {op_callback: {off: it is Python}}}\n"
    )
    evaluator = evaluators.make(tmp_path / "cgins.yaml")
    (case,) = evaluator.cases()
    verdict = evaluator.evaluate(case).verdict
    assert verdict.status is status, verdict.message


@pytest.mark.exam
@pytest.mark.parametrize(
    ("device", "stops"),
    [
        ("cpu", "if x.isnan().any(): raise RuntimeError('CUDA error: device-side assert triggered')"),
        ("cpu", "if x.isnan().any(): os.kill(os.getpid(), signal.SIGFPE)"),
        pytest.param("cuda", "torch._assert_async(~x.isnan().any())", marks=pytest.mark.gpu),
    ],
)
def test_an_assertion_in_torch_s_own_code_ends_a_probe_alone(
    device: str, stops: str, tmp_path: Path, evaluators: Evaluators, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Liger's sparsemax asserted on NaN on a GPU: the trusted worker had no device any more, which was told as a broken host."""
    (tmp_path / "asserting.py").write_text(
        "import os, signal, torch, pytest_cgins\n\n"
        "@pytest_cgins.mark\n"
        "def halved(x: torch.Tensor) -> torch.Tensor:\n"
        f"    {stops}\n"
        "    return x / 2\n"
    )
    (tmp_path / "halves.py").write_text("def halved(x):\n    return x * 0.5\n")
    monkeypatch.syspath_prepend(tmp_path)
    record = "import torch, pytest_cgins, asserting\nwith pytest_cgins.record('traces/tiny', ops=['asserting.halved']):\n"
    subprocess.run(
        [sys.executable, "-c", record + "    asserting.halved(torch.randn(6, 40))"], cwd=tmp_path, check=True
    )
    (tmp_path / "cgins.yaml").write_text(
        "version: 1\ntraces: [traces/tiny]\nkernels:\n"
        f"  halved: {{op: asserting.halved, device: {device}, target: 'halves:halved', probes: {{op_callback: {{off: it is Python}}}}}}\n"
    )
    evaluator = evaluators.make(tmp_path / "cgins.yaml")
    (case,) = evaluator.cases()
    found = evaluator.evaluate(case)
    assert found.verdict.status is Status.PASSED, found.verdict.message
    assert found.correctness is not None
    (probe,) = [probe for probe in found.correctness.probes if probe.name == "special_values"]
    assert (
        probe.message
        == "no inputs of its: torch's own code stops the device on them, as an assertion there does, or ends the process"
    )
