"""Kernels of module ops: what a launcher, a Python function and an extension get of the module's state."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from pytest_cgins.building.contracts.arguments import state_values
from pytest_cgins.building.contracts.functions import ExtensionKernel, PythonKernel, import_target
from pytest_cgins.building.contracts.source import find_target
from pytest_cgins.core.errors import ContractError, SourceError

NORM = "torch.nn.BatchNorm1d"


def norm(*, training: bool = False) -> nn.BatchNorm1d:
    model = nn.BatchNorm1d(3, eps=0.5).train(training)
    nn.init.uniform_(model.weight)
    nn.init.uniform_(model.bias)
    return model


def test_names_of_state_in_a_schema_line(op_call: Any) -> None:
    """Dots become underscores, a digit in front gets one, classes and registries have no name."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.LayerNorm(4)))
    values = state_values(*op_call("torch.nn.Sequential", model, torch.ones(2, 3)))
    assert torch.equal(values["_0_weight"], model[0].weight)
    assert values["_1_0_eps"] == 1e-5
    assert values["training"] is True
    assert not [name for name in values if name.endswith("__")]


def test_a_name_that_two_attributes_would_have_is_no_name(op_call: Any) -> None:
    """`a.b_c` and `a_b.c` are told apart by leaving both out."""
    model = nn.Sequential()
    model.a, model.a_b = nn.Module(), nn.Module()
    model.a.b_c, model.a_b.c, model.a.d = 1, 2, 3
    values = state_values(*op_call("torch.nn.Sequential", model, torch.ones(2)))
    assert "a_b_c" not in values
    assert values["a_d"] == 3


def test_a_launcher_names_the_state_that_it_reads(bind: Any) -> None:
    """Tensors and numbers of the module arrive by name; what the line leaves out is no matter."""
    text = (
        "// cgins: norm_(Tensor input, Tensor weight, Tensor? bias, Tensor running_mean, Tensor running_var, "
        "float eps) -> Tensor\n"
        '#include <cmath>\nextern "C" int norm_(const DLTensor* input, const DLTensor* weight, const DLTensor* bias,\n'
        "    const DLTensor* mean, const DLTensor* var, double eps, DLTensor* out, cgins_stream) {\n"
        "  const int64_t n = weight->shape[0];\n"
        "  const auto at = [](const DLTensor* t, int64_t i) { return cgins::data<float>(t)[i]; };\n"
        "  for (int64_t i = 0; i < cgins::numel(input); ++i)\n"
        "    cgins::data<float>(out)[i] = (at(input, i) - at(mean, i % n)) / std::sqrt(at(var, i % n) + float(eps))\n"
        "        * at(weight, i % n) + at(bias, i % n);\n"
        "  return 0;\n}\n"
    )
    model, x = norm(), torch.randn(5, 3)
    want = model(x).detach()
    (out,) = bind(text, NORM, model, x, outputs=[want]).run()
    torch.testing.assert_close(out, want)


def test_a_launcher_with_a_name_that_the_module_has_not(bind: Any) -> None:
    """The nearest name is suggested, from arguments and state alike."""
    text = (
        "// cgins: f(Tensor input, Tensor running_meen) -> Tensor\n"
        'extern "C" int f(const DLTensor*, const DLTensor*, DLTensor*, cgins_stream) { return 0; }\n'
    )
    x = torch.randn(5, 3)
    with pytest.raises((SourceError, ContractError)) as caught:
        bind(text, NORM, norm(), x, outputs=[x])
    assert 'did you mean "running_mean"?' in str(caught.value)


def test_a_python_kernel_gets_the_module_first(bind: Any) -> None:
    """Its other parameters are forward's, by name; the module has the recorded state."""
    model, x = norm(), torch.randn(5, 3)

    def kernel(module: Any, input: Any) -> Any:  # noqa: A002
        assert type(module) is nn.BatchNorm1d
        return (input - module.running_mean) / (
            module.running_var + module.eps
        ).sqrt() * module.weight + module.bias

    (out,) = bind(kernel, NORM, model, x).run()
    torch.testing.assert_close(out, model(x))


def test_forward_itself_is_a_kernel(op_call: Any) -> None:
    """What it changes in place are the tensors of the call, its hooks are none of the op."""
    model, x = norm(training=True), torch.randn(5, 3)
    model.register_forward_hook(lambda *_: 0)
    call, tensors = op_call(NORM, model, x)
    own = [tensor.detach().clone() for tensor in tensors]
    (out,) = PythonKernel(nn.BatchNorm1d.forward, "k:f").bind(call, own, [], "cpu").run()
    assert torch.equal(out, model.forward(x))
    index = next(a.value.value for a in call.arguments if a.name == "self.running_mean")
    assert torch.equal(own[index], model.running_mean)


@pytest.mark.parametrize("kernel", [lambda: 0, lambda *, module: module, lambda **options: options])
def test_a_python_kernel_without_a_place_for_the_module(bind: Any, kernel: Any) -> None:
    """The first parameter has to take it by position."""
    with pytest.raises(SourceError, match="k:f: it takes no module") as caught:
        bind(kernel, NORM, norm(), torch.randn(5, 3))
    assert "its first parameter is the module" in caught.value.remedy


def test_an_extension_gets_the_tensors_of_the_state_in_order(bind: Any) -> None:
    """Behind forward's arguments, as many as it takes; a function that names its parameters gets them by name."""

    def two(x: torch.Tensor, weight: torch.Tensor, /) -> torch.Tensor:
        return torch.stack([x, weight])

    def named(bias: torch.Tensor, eps: float, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return torch.stack([input, bias, torch.full_like(bias, eps)])

    model, x = norm(), torch.randn(3)
    (out,) = bind(ExtensionKernel(two, "f"), NORM, model, x).run()
    assert torch.equal(out, torch.stack([x, model.weight]))
    (out,) = bind(ExtensionKernel(named, "f"), NORM, model, x).run()
    assert torch.equal(out, torch.stack([x, model.bias, torch.full((3,), model.eps)]))


MODULE = "class Block:\n    def forward(self, x):\n        return x\n    size = 3\n"


def test_a_target_may_be_an_attribute_of_a_class(project: Any) -> None:
    """`module:Class.forward` is found without importing, and imported as what it is."""
    file = project.write("blocks_of_target.py", MODULE)
    source = project.source("{op: torch.mul, device: cpu, target: 'blocks_of_target:Block.forward'}")
    assert source.entry == "Block.forward"
    assert import_target(source)(None, 3) == 3
    assert find_target("blocks_of_target", "Block.forward", project.root) == file
