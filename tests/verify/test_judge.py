"""The judge as a service: packs in, inputs out, answers in, correctness out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch.nn import functional

import pytest_cgins
from pytest_cgins.core import documents
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.case import Case
from pytest_cgins.core.tensors import pack, unpack
from pytest_cgins.core.trace import OpCall, TensorMeta
from pytest_cgins.core.verdict import PROBES, Check, Correctness, Reason
from pytest_cgins.packs.call import flatten, invoke
from pytest_cgins.packs.store import MANIFEST, open_pack
from pytest_cgins.verify import judge
from pytest_cgins.verify.judge import JudgeService
from pytest_cgins.verify.messages import CaseRequest, read
from pytest_cgins.verify.probes import memory_use
from tests.verify.helpers import call_of, normal

SOFTMAX = "torch.nn.functional.softmax"
TOLERANCE = {"kind": "derived", "rtol": 0.0, "atol": 0.0}
Kernel = Callable[[list[torch.Tensor]], list[torch.Tensor]]


def record(folder: Path, run: Callable[[], object], op: str = SOFTMAX, tier: Any = "recipe") -> Case:
    """Record one call, and make the case of its trace on the CPU."""
    with pytest_cgins.record(folder, ops=[op], tier=tier):
        run()
    trace = open_pack(folder).pack.traces[0]
    return Case(
        kernel="k", implementation="cpp", device="cpu", op=op, pack=folder.name, pack_path=str(folder),
        trace_id=trace.id, signature=trace.signature, dtype=trace.dtype,
    )  # fmt: skip


def parameters(case: Case, tolerance: dict[str, Any] = TOLERANCE, seed: int = 1) -> dict[str, Any]:
    return {"case": documents.dump_python(case), "tolerance": tolerance, "seed": seed, "import_root": ""}


def torch_kernel(call: OpCall) -> Kernel:
    """Torch itself as the kernel."""
    return lambda tensors: flatten(invoke(call, tensors))[1]


def judged(
    service: JudgeService,
    case: Case,
    kernel: Kernel | None = None,
    *,
    further: Mapping[str, Any] = MappingProxyType({}),
    observed: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[dict[str, Any], Correctness]:
    """Prepare, run a kernel on each set, judge; `further` is of the kernel's entry."""
    params = {**parameters(case, **options), **further}
    prepared, buffers = service.prepare(params, [])
    answers, contents = answered(prepared["sets"], buffers, kernel)
    # Through JSON, as between processes.
    request = {"case_request": params, "answers": {"sets": answers, "observed": observed or {}}}
    reply, _ = service.judge(json.loads(json.dumps(request)), contents)
    return prepared, documents.load_python(Correctness, json.loads(json.dumps(reply["correctness"])))


def answered(
    sets: Sequence[dict[str, Any]], buffers: Sequence[Buffer], kernel: Kernel | None
) -> tuple[list[dict[str, Any]], list[Buffer]]:
    """What a kernel, by default torch, gives to sets of inputs, as the verification worker tells it."""
    answers, contents = [], []
    for one, buffer in zip(sets, buffers, strict=True):
        tensors = unpack(one["tensors"], buffer, "cpu")
        run = kernel or torch_kernel(documents.load_python(OpCall, one["call"]))
        outputs = [*run(tensors), *(tensors[index] for index in one["mutated"])]
        header, content = pack(outputs)
        answers.append({"name": one["name"], "tensors": header, "devices": ["cpu"] * len(outputs)})
        contents.append(content)
    return answers, contents


def first_failed(correctness: Correctness) -> Check:
    return next(check for check in correctness.checks if not check.passed)


@pytest.fixture
def service() -> JudgeService:
    return JudgeService()


@pytest.fixture
def softmax(tmp_path: Path) -> Case:
    return record(tmp_path / "pack", lambda: functional.softmax(normal(40, 60), dim=-1))


def test_describe_names_the_cpu(service: JudgeService) -> None:
    """The CPU is always there."""
    reply, _ = service.describe({}, [])
    assert next(iter(reply["locks"])) == "cpu"
    assert reply["environments"]["cpu"]["torch"] == str(torch.__version__)


def test_torch_passes_its_own_case(service: JudgeService, softmax: Case) -> None:
    """Recorded inputs are held against gold and reference, fresh and edge ones against the reference."""
    prepared, correctness = judged(service, softmax)
    assert prepared["drift"] is None
    assert correctness.notes == ()
    assert [(check.inputs, check.rule) for check in correctness.checks] == [
        ("recorded", "form"), ("recorded", "gold"), ("recorded", "reference"),
        ("fresh", "form"), ("fresh", "reference"), ("edge", "form"), ("edge", "reference"),
    ]  # fmt: skip
    assert correctness.passed
    assert all(power.caught for power in correctness.power)


def test_inputs_hold_no_gold(service: JudgeService, softmax: Case) -> None:
    """What goes to the verification worker is the call's own arguments, nothing else."""
    prepared, buffers = service.prepare(parameters(softmax), [])
    for one, buffer in zip(prepared["sets"], buffers, strict=True):
        assert set(one) == {
            "name", "call", "tensors", "outputs", "context", "mutated", "probe", "once", "op_calls",
            "large",
        }  # fmt: skip
        assert len(one["tensors"]["metas"]) == 1
        assert buffer.nbytes == 40 * 60 * 4


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (lambda tensors: [tensors[0].softmax(0)], Reason.GOLD_MISMATCH),
        (lambda tensors: [], Reason.OUTPUT_COUNT),
        (lambda tensors: [tensors[0].softmax(-1).repeat(1, 2)[:, ::2]], Reason.STRIDE),
    ],
)
def test_wrong_kernels_have_their_reason(
    service: JudgeService, softmax: Case, kernel: Kernel, reason: Reason
) -> None:
    """The first failed check says what is wrong."""
    _, correctness = judged(service, softmax, kernel)
    assert first_failed(correctness).reason is reason


def test_naive_softmax_fails_on_inputs_that_were_not_recorded(service: JudgeService, softmax: Case) -> None:
    """Recorded logits are small; the fresh and edge rows overflow the naive exponential."""
    _, correctness = judged(service, softmax, lambda t: [t[0].exp() / t[0].exp().sum(-1, keepdim=True)])
    assert all(check.passed for check in correctness.checks if check.inputs == "recorded")
    assert first_failed(correctness).inputs != "recorded"


def test_set_without_an_answer_fails(service: JudgeService, softmax: Case) -> None:
    """Leaving a set out is not passing it."""
    params = parameters(softmax)
    reply, _ = service.judge({"case_request": params, "answers": {"sets": []}}, [])
    correctness = documents.load_python(Correctness, reply["correctness"])
    assert [check.message for check in correctness.checks] == [
        f"the kernel gave no answer ({name} inputs)." for name in ("recorded", "fresh", "edge")
    ]


@pytest.mark.parametrize(
    ("kernel", "asked", "reason"),
    [
        (None, 3, None),
        (lambda tensors: [tensors[0].softmax(0)], 3, Reason.GOLD_MISMATCH),
        (None, 2, Reason.OUTPUT_COUNT),
    ],
)
def test_further_answers_are_held_against_what_was_prepared(
    service: JudgeService, softmax: Case, kernel: Kernel | None, asked: int, reason: Reason | None
) -> None:
    """Of a case whose probes have sets as well, without preparing it once more."""
    params = {**parameters(softmax), "probes": ("sizes", "after_timing")}
    prepared, buffers = service.prepare(params, [])
    core = [one for one in prepared["sets"] if not one["probe"]]
    assert len(prepared["sets"]) > len(core) == 3
    answers, contents = answered(core[:asked], buffers[:asked], kernel)
    reply, _ = service.first_failure({"case_request": params, "answers": {"sets": answers}}, contents)
    assert len(service._prepared) == 1
    if reason is None:
        assert reply["check"] is None
    else:
        assert documents.load_python(Check, reply["check"]).reason is reason


@pytest.mark.parametrize(
    ("conduct", "reason"),
    [
        ({"devices": ["cuda:0"]}, Reason.DEVICE),
        ({"inputs_changed": [0]}, Reason.INPUT_CHANGED),
        ({"overrun": "4 or more bytes behind output 0 were overwritten"}, Reason.OUT_OF_BOUNDS),
        ({"unlike": ["Lazy"]}, Reason.LAZY_OUTPUT),
    ],
)
def test_conduct_that_the_worker_saw_fails(
    service: JudgeService, softmax: Case, conduct: dict[str, Any], reason: Reason
) -> None:
    """Outputs elsewhere, lazy ones, changed inputs and writes out of bounds fail whatever the numbers are."""
    params = {**parameters(softmax), "probes": PROBES}
    prepared, buffers = service.prepare(params, [])
    header, content = pack([unpack(prepared["sets"][0]["tensors"], buffers[0], "cpu")[0].softmax(-1)])
    answer = {"name": "recorded", "tensors": header, **conduct}
    reply, _ = service.judge({"case_request": params, "answers": {"sets": [answer]}}, [content])
    correctness = documents.load_python(Correctness, reply["correctness"])
    assert reason in {correctness.checks[0].reason, *(probe.reason for probe in correctness.tripped)}
    assert not correctness.passed


@pytest.mark.parametrize(("tier", "compared"), [("shapes", []), ("full", [2400])])
def test_how_much_is_compared_with_gold(
    service: JudgeService, tmp_path: Path, tier: str, compared: list[int]
) -> None:
    """Tier `full` has no sample; of shapes rule 2 on fresh and edge inputs is what is left, which is said."""
    case = record(tmp_path / "pack", lambda: functional.softmax(normal(40, 60), dim=-1), tier=tier)
    _, correctness = judged(service, case)
    assert [check.compared for check in correctness.checks if check.rule == "gold"] == compared
    why = ("the pack has shapes only: there is no gold, and rule 1 does not apply",)
    assert correctness.notes == (() if compared else why)
    assert correctness.passed


def test_in_place_op_is_judged_by_its_mutated_input(service: JudgeService, tmp_path: Path) -> None:
    """The mutated input comes after the outputs, and must be right as well."""
    x, y = normal(30, 40), normal(30, 40, seed=1)
    case = record(tmp_path / "pack", lambda: x.clone().add_(y), op="torch.Tensor.add_")
    prepared, correctness = judged(service, case)
    assert prepared["sets"][0]["mutated"] == [0]
    assert correctness.passed
    _, correctness = judged(service, case, lambda tensors: [tensors[0] + tensors[1]])
    assert first_failed(correctness).message.startswith("output 1 differs")


def test_complex_outputs_are_compared_as_pairs(service: JudgeService, tmp_path: Path) -> None:
    """Real and imaginary parts each count."""
    case = record(tmp_path / "pack", lambda: torch.fft.fft(normal(20, 32)), op="torch.fft.fft")
    _, correctness = judged(service, case)
    assert correctness.passed, first_failed(correctness)
    _, correctness = judged(service, case, lambda tensors: [torch.fft.fft(tensors[0]).conj().resolve_conj()])
    assert not correctness.passed


def rewritten(case: Case, change: Callable[[Any], None]) -> Case:
    """The case after its gold was changed in the manifest, with the trace sealed again."""
    from pytest_cgins.packs.store import PackWriter, seal

    reader = open_pack(case.pack_path)
    trace = reader.pack.traces[0]
    assert trace.gold is not None
    gold = trace.gold.tensors[0]
    values = torch.frombuffer(
        bytearray(reader.read(gold.sample_blob or gold.blob)), dtype=torch.float32
    ).clone()
    change(values)
    folder = Path(case.pack_path).with_name("changed")
    with PackWriter(folder) as writer:
        for storage in trace.storages:
            if storage.blob is not None:
                writer.add(reader.read(storage.blob))
        blob = writer.add(values.view(torch.uint8).numpy().data)
        changed = replace(gold, sample_blob=blob) if gold.sample_blob else replace(gold, blob=blob)
        sealed = seal(replace(trace, gold=replace(trace.gold, tensors=(changed,))))
        writer.commit(replace(reader.pack, traces=(sealed,)))
    assert (folder / MANIFEST).exists()
    return replace(case, pack_path=str(folder), trace_id=sealed.id)


def test_gold_that_torch_no_longer_gives_is_drift(service: JudgeService, softmax: Case) -> None:
    """A gold that is off is the trace's fault, whatever kernel is judged; no inputs are handed out."""
    case = rewritten(softmax, lambda values: values.mul_(1.01))
    prepared, buffers = service.prepare(parameters(case), [])
    assert prepared["sets"] == []
    assert buffers == []
    assert prepared["drift"].startswith(
        f"torch {torch.__version__} on cpu does not reproduce the gold of output 0"
    )
    assert "Record the pack again" in prepared["drift"]


def test_explicit_tolerance_that_torch_misses_is_drift(service: JudgeService, softmax: Case) -> None:
    """A tolerance that torch's own answer does not hold says so, and what to do."""
    case = rewritten(softmax, lambda values: values.mul_(1 + 1e-6))
    tolerance = {"kind": "explicit", "rtol": 1e-7, "atol": 0.0}
    prepared, _ = service.prepare(parameters(case, tolerance), [])
    assert (
        "what rtol 1e-07 and atol 0 allow. The derived tolerance allows it: leave them out"
        in prepared["drift"]
    )
    prepared, _ = service.prepare(parameters(case, {**tolerance, "rtol": 1e-5}), [])
    assert prepared["drift"] is None


def test_preparation_is_shared_and_bounded(
    softmax: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trace is prepared once for several implementations; all but the last two are forgotten when memory is short."""
    others = [
        record(tmp_path / f"other{rows}", lambda rows=rows: functional.softmax(normal(rows, 20), dim=-1))
        for rows in (10, 11)
    ]
    monkeypatch.setattr(judge, "CACHE_BYTES", 1)
    service = JudgeService()
    service.prepare(parameters(softmax), [])
    first = service._preparation(read(CaseRequest, parameters(softmax)))
    assert (
        service._preparation(read(CaseRequest, parameters(replace(softmax, implementation="cuda")))) is first
    )
    service.prepare(parameters(others[0]), [])
    assert service._preparation(read(CaseRequest, parameters(softmax))) is first
    for other in others:
        service.prepare(parameters(other), [])
    assert service._preparation(read(CaseRequest, parameters(softmax))) is not first


def test_seed_changes_fresh_inputs_only(service: JudgeService, softmax: Case) -> None:
    """Another seed, other fresh inputs, the same recorded ones."""
    one, two = (service.prepare(parameters(softmax, seed=seed), [])[1] for seed in (1, 2))
    assert bytes(one[0].view()) == bytes(two[0].view())
    assert bytes(one[1].view()) != bytes(two[1].view())


def test_output_metas_are_those_of_torch(service: JudgeService) -> None:
    """Shape, dtype and strides of what torch returns, dense, each on a storage of its own."""
    x = normal(2, 3, 4, 5).to(memory_format=torch.channels_last)
    call, tensors = call_of("torch.nn.functional.gelu", functional.gelu, x)
    header, buffer = pack(tensors)
    reply, _ = service.output_metas({"call": documents.dump_python(call), "tensors": header}, [buffer])
    metas = [documents.load_python(TensorMeta, meta) for meta in reply["outputs"]]
    assert [(meta.shape, meta.stride, meta.dtype) for meta in metas] == [
        ((2, 3, 4, 5), (60, 1, 15, 3), "float32")
    ]


def test_a_real_answer_to_a_complex_op_is_refused(service: JudgeService, tmp_path: Path) -> None:
    """Pairs of real numbers are not complex ones, although that is how they are compared."""
    x = torch.complex(normal(5, 8), normal(5, 8, seed=1))
    case = record(tmp_path / "pack", lambda: torch.mul(x, 2.0), op="torch.mul")
    twice: Kernel = lambda tensors: [tensors[0] * 2.0]  # noqa: E731
    for kernel, reason in ((twice, Reason.OK), (lambda t: [torch.view_as_real(twice(t)[0])], Reason.DTYPE)):
        assert judged(service, case, kernel)[1].checks[0].reason is reason


def test_inputs_that_cannot_be_fresh_are_said_to_be_recorded(service: JudgeService, tmp_path: Path) -> None:
    """An op on integers alone is checked on the recorded inputs only, and the report says so."""
    case = record(tmp_path / "pack", lambda: torch.add(torch.arange(12).reshape(3, 4), 5), op="torch.add")
    prepared, correctness = judged(service, case)
    assert [one["name"] for one in prepared["sets"]] == ["recorded"]
    assert any("no fresh inputs" in note for note in correctness.notes)


@pytest.mark.parametrize("tier", ["shapes", "recipe"])
def test_result_of_an_op_in_place_keeps_the_gaps_of_its_argument(
    service: JudgeService, tmp_path: Path, tier: str
) -> None:
    """relu_ of every second column gives that view back: its strides are not the kernel's choice."""
    op = "torch.nn.functional.relu_"
    case = record(tmp_path / "pack", lambda: torch.relu_(normal(40, 60)[:, ::2]), op, tier=tier)
    prepared, correctness = judged(service, case)
    assert correctness.passed, correctness.checks
    assert [one["outputs"][0]["stride"] for one in prepared["sets"]] == [[60, 2]] * len(prepared["sets"])


@pytest.fixture(scope="module")
def logsumexp(tmp_path_factory: pytest.TempPathFactory) -> Callable[[dict[str, Any]], Correctness]:
    """Judges torch's answers to a call on 32 bytes for which torch takes 128 MiB, and what was observed besides.

    Up to 32 MiB come from what malloc has kept: they would not be seen in each process.
    """
    x = torch.randn(1, 8).expand(2**22, 8)  # exp of it is made
    case = record(tmp_path_factory.mktemp("pack"), lambda: torch.logsumexp(x, (0, 1)), op="torch.logsumexp")
    case_request = {**parameters(case), "probes": [memory_use.NAME]}
    service = JudgeService()
    prepared, buffers = service.prepare(case_request, [])
    answers, contents = answered(prepared["sets"], buffers, None)

    def judge(observed: dict[str, Any]) -> Correctness:
        reply, _ = service.judge(
            {"case_request": case_request, "answers": {"sets": answers, "observed": observed}}, contents
        )
        return documents.load_python(Correctness, reply["correctness"])

    return judge


@pytest.mark.exam
@pytest.mark.parametrize(
    ("mib", "when", "trips"), [(900, "first", False), (900, "later", True), (100, "later", False)]
)
def test_memory_is_held_against_what_torch_takes_for_the_same_call(
    logsumexp: Callable[[dict[str, Any]], Correctness],
    monkeypatch: pytest.MonkeyPatch,
    mib: int,
    when: str,
    trips: bool,
) -> None:
    """The kernel may take as much as torch besides its own bound, and in its first call a further GiB."""
    monkeypatch.setattr(memory_use, "SLACK_NBYTES", 2**20)
    entry = {"when": when, "set": "recorded", "moved": 32, "peak": mib << 20}
    correctness = logsumexp({memory_use.NAME: [entry]})
    (probe,) = [one for one in correctness.probes if one.name == memory_use.NAME]
    assert (probe.outcome == "tripped") is trips, probe.message
    if trips:
        assert probe.reason is Reason.MEMORY_USE
        assert re.search(
            r"900.0 MiB of memory beyond .* [12]\d\d\.\d MiB is the limit, and torch itself takes [12]\d\d",
            probe.message,
        )
