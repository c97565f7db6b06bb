"""`pytest_cgins.patch`: kernels in a program of one's own, eager and under torch.compile, on a CPU."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import relu

import pytest_cgins
import pytest_cgins.building.loading.launcher  # with guards around outputs, as other tests in this process want it
from pytest_cgins.app.whole_model.swap import FIRST, GRADIENTS
from pytest_cgins.building.loading import launcher
from pytest_cgins.core.errors import ConfigError, LaunchError

KERNELS = """
CALLS = []
def shifted_relu(input, inplace=False):
    CALLS.append(tuple(input.shape))
    if input.ndim == 1:
        raise ValueError("no vectors")
    return input.clamp(min=0) + 1  # so that a test sees who answered

def doubled_(x, fail):
    x.mul_(2)
    if fail.any():
        raise ValueError("half way")
    return x
"""
MODELS = """
import torch
import pytest_cgins

@pytest_cgins.mark
def doubled_(x, fail):
    return x.mul_(2)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.nn.functional.relu(self.linear(x)), torch.nn.functional.relu(x[0])
"""
CONFIG = """
version: 1
kernels:
  relu: {op: torch.nn.functional.relu, device: cpu, target: "patch_kernels:shifted_relu"}
  doubled: {op: patch_models.doubled_, device: cpu, target: "patch_kernels:doubled_"}
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("patched")
    (folder / "patch_kernels.py").write_text(KERNELS)
    (folder / "patch_models.py").write_text(MODELS)
    (folder / "cgins.yaml").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield folder / "cgins.yaml"
    for name in ("patch_kernels", "patch_models"):
        sys.modules.pop(name, None)


@pytest.fixture
def net(config: Path) -> torch.nn.Module:
    del config
    import patch_models  # type: ignore[import-not-found]

    torch.manual_seed(0)
    model: torch.nn.Module = patch_models.Net().eval()
    return model


def test_calls_go_to_the_kernel_from_the_second_of_their_form_on(net: Any, config: Path) -> None:
    """What the kernel does not take is torch's, and both are counted; afterwards the model is as it was."""
    x = torch.randn(3, 4)
    with torch.no_grad():
        plain, _ = net(x)
        with pytest_cgins.patch(net, config) as patched:
            outputs = [net(x)[0] for _ in range(3)]
        after, _ = net(x)
    assert [torch.equal(output, plain) for output in outputs] == [True, False, False]
    assert torch.equal(outputs[2], plain + 1)
    assert torch.equal(after, plain)
    count = patched.counts()["torch.nn.functional.relu"]
    why = "patch_kernels:shifted_relu raised ValueError: no vectors"
    assert (count.kernel, count.hits, count.errors) == ("relu/python", 2, 1)
    assert count.fallbacks == {FIRST: 2, why: 2}, "what failed once is not tried again"
    assert str(patched).splitlines() == [
        f"torch.nn.functional.relu: relu/python answered 2 calls, torch 4; 2 × {FIRST}; 2 × {why}"
    ]


EXAMPLE = Path(__file__).parents[3] / "example_project" / "cgins.yaml"
STRIDED = torch.randn(6, 5, generator=torch.Generator().manual_seed(1)).T


@pytest.mark.parametrize(
    ("kernel", "op", "calls"),
    [
        ("layer_norm", "layer_norm", lambda x: ((x, (6,)), {"weight": x[0] + 1, "bias": x[1] + 0})),
        ("softmax", "softmax", lambda x: ((x,), {"dim": 0})),
        ("linear", "linear", lambda x: ((x, x[:3] + 1, None), {})),
        ("embedding", "embedding", lambda x: ((x.abs().long() % 5, x), {})),
    ],
)
def test_later_calls_of_a_form_are_answered_on_their_own_memory(
    monkeypatch: pytest.MonkeyPatch, kernel: str, op: str, calls: Any
) -> None:
    """They are not bound anew, each has outputs of its own, and what a call was given is let go."""
    monkeypatch.setattr(launcher, "GUARD_NBYTES", 0)
    bound = []
    plain = launcher.Launcher.bind
    monkeypatch.setattr(launcher.Launcher, "bind", lambda *given: bound.append(1) or plain(*given))
    function = getattr(torch.nn.functional, op)
    expected, answers = [], []
    with torch.no_grad(), pytest_cgins.patch(config=EXAMPLE, kernels=[kernel], device="cpu") as patched:
        for number in range(4):
            x = STRIDED + number
            args, kwargs = calls(x)
            answers.append(function(*args, **kwargs))
            with torch._C.DisableTorchFunction():
                expected.append(function(*args, **kwargs))
            gone = weakref.ref(x)
            del x, args, kwargs
            assert gone() is None
    assert patched.counts()[f"torch.nn.functional.{op}"].hits == 3
    assert len(bound) == 1
    for one, other in zip(answers, expected, strict=True):
        torch.testing.assert_close(one, other)
    assert len({one.data_ptr() for one in answers}) == 4


def test_calls_of_one_function_differ_by_what_they_pass(config: Path) -> None:
    """A plan is of one form: values and the order of arguments are part of it."""
    x, y = torch.randn(3, 4), torch.randn(5, 4)
    with torch.no_grad(), pytest_cgins.patch(config=config, kernels=["relu"]) as patched:
        for one in (x, y, x, y, -x, -y):
            answer = relu(one)
        assert torch.equal(answer, (-y).clamp(min=0) + 1)
        relu(input=x)
        assert torch.equal(relu(input=-x), (-x).clamp(min=0) + 1)
    assert patched.counts()["torch.nn.functional.relu"].hits == 6


def test_a_block_is_patched_without_a_model(config: Path) -> None:
    """The mode is on in the block, for named kernels alone."""
    x = torch.randn(2, 2)
    with pytest_cgins.patch(config=config, kernels=["relu"]) as patched:
        relu(x)
        answer = relu(x)
    assert torch.equal(answer, x.clamp(min=0) + 1)
    assert torch.equal(relu(x), x.clamp(min=0))
    assert [*patched.counts()] == ["torch.nn.functional.relu"]


def test_who_asks_for_gradients_gets_torchs(net: Any, config: Path) -> None:
    """A kernel's outputs have none, and training would stand still."""
    x = torch.randn(3, 4)
    with pytest_cgins.patch(net, config, kernels=["relu"]) as patched:
        for _ in range(2):
            output, _ = net(x)
    output.sum().backward()
    assert net.linear.weight.grad is not None
    assert patched.counts()["torch.nn.functional.relu"].fallbacks[GRADIENTS] == 1


@pytest.mark.exam
@pytest.mark.parametrize("dynamic", [False, True])
def test_kernels_stay_in_what_torch_compiles(net: Any, config: Path, dynamic: bool) -> None:
    """They are an operator of the graph, which does not break; the first call of a form is torch's there, too."""
    x = torch.randn(3, 4)
    torch._dynamo.reset()
    with torch.no_grad(), pytest_cgins.patch(net, config, kernels=["relu"]) as patched:
        plain, _ = type(net).forward(net, x)
        compiled = torch.compile(net, backend=patched.backend, fullgraph=True, dynamic=dynamic)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outputs = [compiled(x)[0] for _ in range(3)]
    assert torch.allclose(outputs[0], plain)
    assert torch.allclose(outputs[2], plain + 1)
    assert patched.counts()["torch.nn.functional.relu"].hits == 2


def test_what_writes_to_its_arguments_is_undone_where_it_fails(config: Path) -> None:
    """In the first call of a form; later ones have nothing to go back to, and raise."""
    import patch_models

    right, wrong = torch.tensor([False]), torch.tensor([True])
    with pytest_cgins.patch(config=config, kernels=["doubled"]) as patched:
        patch_models.doubled_(torch.ones(2, 2), right)  # torch's
        x = torch.ones(2, 2)
        assert torch.equal(patch_models.doubled_(x, wrong), torch.full((2, 2), 2.0))
        assert patched.counts()["patch_models.doubled_"].errors == 1
        patch_models.doubled_(torch.ones(3, 2), right)
        patch_models.doubled_(torch.ones(3, 2), right)  # the kernel's
        with pytest.raises(LaunchError, match="half way"):
            patch_models.doubled_(torch.ones(3, 2), wrong)


def test_a_kernel_that_is_not_there_is_refused(config: Path) -> None:
    """With the nearest that is."""
    with pytest.raises(ConfigError, match="reul"):
        pytest_cgins.patch(config=config, kernels=["reul"])
