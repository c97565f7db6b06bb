"""The service that runs kernels on inputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.building.build import build
from pytest_cgins.core import documents
from pytest_cgins.core.bits import same
from pytest_cgins.core.errors import ProtocolError, WorkerCrashed
from pytest_cgins.core.model import Autocast, Context, KernelSource
from pytest_cgins.core.tensors import unpack
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.run.verification import VerificationService

INPUT = torch.tensor([[-1.0, 2.0, -3.0], [4.0, -5.0, float("nan")]])


@pytest.fixture
def service() -> VerificationService:
    return VerificationService({})


Make = Callable[..., Any]


def run(
    service: VerificationService, kernel: Any, *sets: Any
) -> list[tuple[dict[str, Any], list[torch.Tensor]]]:
    """Answers of the service, each with its tensors."""
    params = {"kernel": kernel, "device": "cpu", "sets": [one for one, _ in sets]}
    result, buffers = service.run(params, [buffer for _, buffer in sets])
    return [
        (answer, unpack(answer["tensors"], buffer, "cpu"))
        for answer, buffer in zip(result["sets"], buffers, strict=True)
    ]


def test_a_kernel_runs_on_every_set(
    service: VerificationService, python_kernel: Make, relu_set: Make
) -> None:
    """Each set's answer holds the kernel's outputs on that set's inputs."""
    sets = [relu_set(INPUT, name="recorded"), relu_set(INPUT + 1, name="fresh")]
    first, second = run(service, python_kernel("relu"), *sets)
    assert [first[0]["name"], second[0]["name"]] == ["recorded", "fresh"]
    assert same(first[1][0], INPUT.relu())
    assert same(second[1][0], (INPUT + 1).relu())
    assert first[0]["devices"] == ["cpu"]
    assert first[0]["inputs_changed"] == []
    assert first[0]["error"] is None


def test_strides_of_an_output_are_kept(
    service: VerificationService, python_kernel: Make, relu_set: Make
) -> None:
    """How an output lies is for the judge to see, not for us to mend."""
    ((_, (output,)),) = run(service, python_kernel("transposed"), relu_set(INPUT))
    assert output.stride() == (1, 2)


def test_an_input_that_changed_is_named(
    service: VerificationService, python_kernel: Make, relu_set: Make
) -> None:
    """A kernel that writes to its inputs is told on, though its output is right."""
    ((answer, tensors),) = run(service, python_kernel("changes_its_input"), relu_set(INPUT))
    assert answer["inputs_changed"] == [0]
    assert same(tensors[0], INPUT.relu())


def test_writes_into_gaps_of_an_input_are_seen(
    service: VerificationService, python_kernel: Make, relu_set: Make
) -> None:
    """What lies between an input's elements belongs to the caller, too."""
    gaps = torch.arange(12.0).reshape(3, 4)[:, ::2]
    ((answer, _),) = run(service, python_kernel("writes_between_its_input_s_columns"), relu_set(gaps))
    assert answer["inputs_changed"] == [0]


def test_an_expanded_input_is_compared_as_it_lies(
    service: VerificationService, python_kernel: Make, relu_set: Make
) -> None:
    """A terabyte of views on one number takes four bytes to look at."""
    one, buffer = relu_set(torch.ones(1).expand(2))
    one["tensors"]["metas"][0]["shape"] = [2**38]
    ((answer, _),) = run(service, python_kernel("tells_context"), (one, buffer))
    assert answer["error"] is None
    assert answer["inputs_changed"] == []


def test_a_mutated_input_is_handed_back(
    service: VerificationService, python_kernel: Make, relu_set: Make
) -> None:
    """What the op itself changes comes after the outputs, and is no offence."""
    ((answer, tensors),) = run(service, python_kernel("in_place"), relu_set(INPUT, mutated=(0,)))
    assert answer["inputs_changed"] == []
    assert [same(tensor, INPUT.relu()) for tensor in tensors] == [True, True]


@pytest.mark.parametrize("first_changes", ["changes_its_input", "in_place"])
def test_sets_do_not_share_inputs(
    service: VerificationService, first_changes: str, python_kernel: Make, relu_set: Make
) -> None:
    """What a kernel did to one set's inputs is not seen in the next."""
    one = relu_set(INPUT)
    (_, first), (_, second) = run(service, python_kernel(first_changes), one, one)
    assert same(first[0], second[0])


def test_an_error_stays_in_its_set(service: VerificationService, python_kernel: Make, relu_set: Make) -> None:
    """A set on which the kernel raises says what it raised; the sets around it are run."""
    sets = [relu_set(INPUT[:1]), relu_set(INPUT), relu_set(INPUT[:1])]
    before, failed, after = run(service, python_kernel("fails_on_two_rows"), *sets)
    assert before[0]["error"] is None
    assert after[0]["error"] is None
    assert failed[0]["error"]["kind"] == "LaunchError"
    assert "ValueError: two rows are too many" in failed[0]["error"]["message"]
    assert "zoo.py" in failed[0]["error"]["trace"]
    assert failed[1] == []


@pytest.mark.parametrize(
    ("function", "kind", "words"),
    [
        ("leaves", "SystemExit", "0"),
        ("sparse", "LaunchError", "the kernel returned a tensor with layout torch.sparse_coo"),
        ("absent", "SourceError", 'no function "absent"'),
    ],
)
def test_whatever_goes_wrong_is_the_set_s_error(
    service: VerificationService, function: str, kind: str, words: str, python_kernel: Make, relu_set: Make
) -> None:
    """Leaving, returning what cannot be compared, and not being there: none of them raises here."""
    ((answer, tensors),) = run(service, python_kernel(function), relu_set(INPUT))
    assert answer["error"]["kind"] == kind
    assert words in answer["error"]["message"]
    assert tensors == []


def test_a_subclass_does_not_speak_for_itself(
    service: VerificationService, python_kernel: Make, relu_set: Make
) -> None:
    """An output is taken as the plain tensor that it is."""
    ((answer, tensors),) = run(service, python_kernel("dressed"), relu_set(INPUT))
    assert answer["error"] is None
    assert same(tensors[0], INPUT.relu())


@pytest.mark.parametrize(
    ("context", "flags"),
    [
        (Context(), [False, False, False]),
        (Context(grad_enabled=True), [True, False, False]),
        (Context(autocast=(Autocast(device_type="cpu", dtype="bfloat16"),)), [False, True, False]),
        (Context(inference_mode=True), [False, False, True]),
    ],
)
def test_the_recorded_context_is_restored(
    service: VerificationService, context: Context, flags: list[bool], python_kernel: Make, relu_set: Make
) -> None:
    """A kernel runs in the grad mode and autocast state of the recording."""
    ((_, (seen,)),) = run(service, python_kernel("tells_context"), relu_set(INPUT, context=context))
    assert seen.tolist() == flags


def test_sets_and_buffers_must_agree(
    service: VerificationService, python_kernel: Make, relu_set: Make
) -> None:
    """A set without a buffer is the caller's error."""
    one, _ = relu_set(INPUT)
    with pytest.raises(ProtocolError, match="1 set came with 0 buffers"):
        service.run({"kernel": python_kernel("relu"), "device": "cpu", "sets": [one]}, [])


def test_a_launcher_is_run(service: VerificationService, tmp_path: Path, relu_set: Make) -> None:
    """A compiled C++ launcher gets its outputs allocated, and elements that it does not write show."""
    source = tmp_path / "relu.cpp"
    source.write_text(
        "// cgins: relu(Tensor input) -> Tensor\n#include <cgins.h>\n"
        'extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {\n'
        "  const float* x = (const float*)input->data; float* y = (float*)out->data;\n"
        "  for (int i = 0; i < 5; ++i) y[i] = x[i] < 0 ? 0 : x[i];\n"
        "  return 0;\n}\n"
    )
    compiled = build(
        KernelSource(
            kernel="relu",
            implementation="cpp",
            op="torch.nn.functional.relu",
            device="cpu",
            contract="launcher",
            entry="relu",
            schema="relu(Tensor input) -> Tensor",
            files=(str(source),),
        ),
        cache=tmp_path / "cache",
    )
    tensor = torch.tensor([[-1.0, 2.0, -3.0], [4.0, -5.0, 6.0]])
    ((answer, tensors),) = run(service, documents.dump_python(compiled), relu_set(tensor))
    assert answer["error"] is None
    assert torch.equal(tensors[0].flatten()[:5], tensor.relu().flatten()[:5])
    assert tensors[0].flatten()[5] != 6.0


def test_the_service_works_in_a_worker(workers: WorkerPool, python_kernel: Make, relu_set: Make) -> None:
    """The same through the protocol: outputs come back, with what the kernel printed."""
    one, buffer = relu_set(INPUT)
    params = {"kernel": python_kernel("relu"), "device": "cpu", "sets": [one]}
    reply = workers.call("verification", "run", params, [buffer], timeout_s=60)
    (answer,) = reply.result["sets"]
    (output,) = unpack(answer["tensors"], reply.buffers[0], "cpu")
    assert same(output, INPUT.relu())
    assert reply.output == "in the kernel\n"


def test_a_kernel_that_aborts_costs_one_request(
    workers: WorkerPool, python_kernel: Make, relu_set: Make
) -> None:
    """The next kernel finds a fresh worker."""
    one, buffer = relu_set(INPUT)
    params = {"kernel": python_kernel("aborts"), "device": "cpu", "sets": [one]}
    with pytest.raises(WorkerCrashed, match="SIGABRT"):
        workers.call("verification", "run", params, [buffer], timeout_s=60)
    params["kernel"] = python_kernel("relu")
    reply = workers.call("verification", "run", params, [buffer], timeout_s=60)
    assert reply.result["sets"][0]["error"] is None
