"""The service that runs kernels on inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.core.bitwise import same
from pytest_cgins.core.errors import ProtocolError, WorkerCrashed
from pytest_cgins.core.tensors import unpack
from pytest_cgins.core.trace import Autocast, Context
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.run.verification_service import VerificationService
from tests.run.relu import launcher, relu_set, zoo_kernel

INPUT = torch.tensor([[-1.0, 2.0, -3.0], [4.0, -5.0, float("nan")]])


def run(kernel: Any, *sets: Any) -> list[tuple[dict[str, Any], list[torch.Tensor]]]:
    """Answers of the service, each with its tensors."""
    params = {"kernel": kernel, "device": "cpu", "sets": [one for one, _ in sets]}
    result, buffers = VerificationService().run(params, [buffer for _, buffer in sets])
    return [
        (answer, unpack(answer["tensors"], buffer, "cpu"))
        for answer, buffer in zip(result["sets"], buffers, strict=True)
    ]


def test_a_kernel_runs_on_every_set() -> None:
    """Each set's answer holds the kernel's outputs on that set's inputs."""
    sets = [relu_set(INPUT, name="recorded"), relu_set(INPUT + 1, name="fresh")]
    first, second = run(zoo_kernel("relu"), *sets)
    assert [first[0]["name"], second[0]["name"]] == ["recorded", "fresh"]
    assert same(first[1][0], INPUT.relu())
    assert same(second[1][0], (INPUT + 1).relu())
    assert first[0]["devices"] == ["cpu"]
    assert first[0]["inputs_changed"] == []
    assert first[0]["error"] is None


def test_strides_of_an_output_are_kept() -> None:
    """How an output lies is for the judge to see, not for us to mend."""
    ((_, (output,)),) = run(zoo_kernel("transposed"), relu_set(INPUT))
    assert output.stride() == (1, 2)


@pytest.mark.parametrize(
    ("function", "tensor"),
    [
        ("changes_its_input", INPUT),
        # What lies between an input's elements belongs to the caller, too.
        ("writes_between_its_input_s_columns", torch.arange(12.0).reshape(3, 4)[:, ::2]),
    ],
)
def test_an_input_that_changed_is_named(function: str, tensor: torch.Tensor) -> None:
    """A kernel that writes to its inputs is told on, though its output is right."""
    ((answer, tensors),) = run(zoo_kernel(function), relu_set(tensor))
    assert answer["inputs_changed"] == [0]
    assert same(tensors[0], tensor.relu())


def test_an_expanded_input_is_compared_as_it_lies() -> None:
    """A terabyte of views on one number takes four bytes to look at."""
    one, buffer = relu_set(torch.ones(1).expand(2))
    one["tensors"]["metas"][0]["shape"] = [2**38]
    ((answer, _),) = run(zoo_kernel("tells_context"), (one, buffer))
    assert answer["error"] is None
    assert answer["inputs_changed"] == []


def test_a_mutated_input_is_handed_back() -> None:
    """What the op itself changes comes after the outputs, and is no offence."""
    ((answer, tensors),) = run(zoo_kernel("in_place"), relu_set(INPUT, mutated=(0,)))
    assert answer["inputs_changed"] == []
    assert [same(tensor, INPUT.relu()) for tensor in tensors] == [True, True]


@pytest.mark.parametrize("first_changes", ["changes_its_input", "in_place"])
def test_sets_do_not_share_inputs(first_changes: str) -> None:
    """What a kernel did to one set's inputs is not seen in the next."""
    one = relu_set(INPUT)
    (_, first), (_, second) = run(zoo_kernel(first_changes), one, one)
    assert same(first[0], second[0])


def test_an_error_stays_in_its_set() -> None:
    """A set on which the kernel raises says what it raised; the sets around it are run."""
    sets = [relu_set(INPUT[:1]), relu_set(INPUT), relu_set(INPUT[:1])]
    before, failed, after = run(zoo_kernel("fails_on_two_rows"), *sets)
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
def test_whatever_goes_wrong_is_the_set_s_error(function: str, kind: str, words: str) -> None:
    """Leaving, returning what cannot be compared, and not being there: none of them raises here."""
    ((answer, tensors),) = run(zoo_kernel(function), relu_set(INPUT))
    assert answer["error"]["kind"] == kind
    assert words in answer["error"]["message"]
    assert tensors == []


def test_a_subclass_does_not_speak_for_itself() -> None:
    """An output is taken as the plain tensor that it is."""
    ((answer, tensors),) = run(zoo_kernel("dressed"), relu_set(INPUT))
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
def test_the_recorded_context_is_restored(context: Context, flags: list[bool]) -> None:
    """A kernel runs in the grad mode and autocast state of the recording."""
    ((_, (seen,)),) = run(zoo_kernel("tells_context"), relu_set(INPUT, context=context))
    assert seen.tolist() == flags


def test_sets_and_buffers_must_agree() -> None:
    """A set without a buffer is the caller's error."""
    one, _ = relu_set(INPUT)
    with pytest.raises(ProtocolError, match="1 set came with 0 buffers"):
        VerificationService().run({"kernel": zoo_kernel("relu"), "device": "cpu", "sets": [one]}, [])


def test_a_launcher_is_run(tmp_path: Path) -> None:
    """A compiled C++ launcher gets its outputs allocated, and elements that it does not write show."""
    kernel = launcher(tmp_path, "for (int i = 0; i < 5; ++i) y[i] = x[i] < 0 ? 0 : x[i];")
    tensor = torch.tensor([[-1.0, 2.0, -3.0], [4.0, -5.0, 6.0]])
    ((answer, tensors),) = run(kernel, relu_set(tensor))
    assert answer["error"] is None
    assert torch.equal(tensors[0].flatten()[:5], tensor.relu().flatten()[:5])
    assert tensors[0].flatten()[5] != 6.0


def test_the_service_works_in_a_worker(workers: WorkerPool) -> None:
    """The same through the protocol: outputs come back, with what the kernel printed."""
    one, buffer = relu_set(INPUT)
    params = {"kernel": zoo_kernel("relu"), "device": "cpu", "sets": [one]}
    reply = workers.call("verification", "run", params, [buffer], timeout_s=60)
    (answer,) = reply.result["sets"]
    (output,) = unpack(answer["tensors"], reply.buffers[0], "cpu")
    assert same(output, INPUT.relu())
    assert reply.output == "in the kernel\n"


def test_a_kernel_that_aborts_costs_one_request(workers: WorkerPool) -> None:
    """The next kernel finds a fresh worker."""
    one, buffer = relu_set(INPUT)
    params = {"kernel": zoo_kernel("aborts"), "device": "cpu", "sets": [one]}
    with pytest.raises(WorkerCrashed, match="SIGABRT"):
        workers.call("verification", "run", params, [buffer], timeout_s=60)
    params["kernel"] = zoo_kernel("relu")
    reply = workers.call("verification", "run", params, [buffer], timeout_s=60)
    assert reply.result["sets"][0]["error"] is None
