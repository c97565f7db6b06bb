from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FORWARD = """import torch
import torch.nn as nn
import torch.nn.functional as F

def forward_fn(x, weight, bias, eps):
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)

class Model(nn.Module):
    def __init__(self, features: int = 8, init_method: str = "ones"):
        super().__init__()
        make = torch.ones if init_method == "ones" else torch.randn
        self.weight = nn.Parameter(make(features))
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x, fn=forward_fn):
        return fn(x, self.weight, self.bias, 1e-5)

def get_inputs(batch: int = 4, features: int = 8):
    return [torch.randn(batch, features, requires_grad=REQUIRES)]

input_names = ["x"]
"""
CONFIG = {
    "single_input_configs": [{"batch": 2}],
    "single_init_configs": [{"init_method": "ones"}],
    "single_shared_configs": [{"features": 4}],
    "multi_input_configs": [{"batch": 2}, {"batch": 3}],
    "multi_init_configs": [{"init_method": "ones"}, {"init_method": "random"}],
    "multi_shared_configs": [{"features": 4, "unknown": 1}],
}


def task(write: Callable[..., Path]) -> None:
    for direction, requires in (("forward", "False"), ("backward", "True")):
        write(f"tasks/norm/func_{direction}.py", FORWARD.replace("REQUIRES", requires))
        write(f"tasks/norm/config_{direction}.json", CONFIG)


def test_forward_and_backward_in_every_configuration(
    cgins: Callable[..., Any], write: Callable[..., Path]
) -> None:
    """Each configuration gives a trace of forward_fn, and one of its backward by all that has a gradient."""
    task(write)
    run = cgins("import", "robustkbench", "tasks", "--allow-code")
    assert run.code == 0, run.out
    forward, backward = "references.rkb_norm_forward.forward_fn", "references.rkb_norm_backward.forward_fn"
    assert run.ops() == [f"{backward}@backward(x,weight,bias)"] * 4 + [forward] * 4
    shapes = {trace.tensors[0].shape for trace in run.pack.traces}
    assert shapes == {(2, 4), (3, 4)}
    assert "takes no unknown; left out of its settings" in run.out


@pytest.mark.exam
def test_seeds(cgins: Callable[..., Any], write: Callable[..., Path]) -> None:
    """In tier full each seed of a configuration is a trace with values of its own."""
    task(write)
    options = ("--allow-code", "--configs", "single", "--seeds", 3, "--tier", "full")
    run = cgins("import", "robustkbench", "tasks/norm", *options)
    assert len(run.pack.traces) == 6
    assert len({trace.id for trace in run.pack.traces}) == 6
    assert "differ little" not in run.out
    assert "differ little" in cgins("import", "robustkbench", "tasks/norm", *options[:-2]).out


def test_what_is_missing(cgins: Callable[..., Any], write: Callable[..., Path]) -> None:
    """A task without its config is left out by name; a folder without tasks is an error; code needs permission."""
    write("tasks/norm/func_forward.py", FORWARD)
    run = cgins("import", "robustkbench", "tasks", "--allow-code")
    assert run.code == 1
    assert "left out  norm/forward: " in run.out
    assert "config_forward.json: No such file" in run.out
    write("empty/readme", "")
    assert "has no func_forward.py" in cgins("import", "robustkbench", "empty", "--allow-code").err
    assert "--allow-code" in cgins("import", "robustkbench", "tasks").err


def test_what_is_too_big_is_never_made(cgins: Callable[..., Any], write: Callable[..., Path]) -> None:
    """A task of 64 TiB is left out by its size; code that needs numbers is run, and then left out by its size, too."""
    sizes = {"single_input_configs": [{"batch": 2**40, "features": 16}, {"batch": 2}]}
    write("tasks/big/func_forward.py", FORWARD.replace("REQUIRES", "False"))
    write("tasks/big/config_forward.json", {**sizes, "single_shared_configs": [{"features": 16}]})
    needs_numbers = FORWARD.replace("make(features))", "make(features) * torch.ones(1).item())")
    write("tasks/values/func_forward.py", needs_numbers.replace("REQUIRES", "False"))
    small = {
        "single_input_configs": [{"batch": 2**16}, {"batch": 2}],
        "single_shared_configs": [{"features": 16}],
    }
    write("tasks/values/config_forward.json", small)
    run = cgins("import", "robustkbench", "tasks", "--allow-code", "--configs", "single", "--max-mib", "1")
    assert len(run.pack.traces) == 2
    assert (
        "big/forward config 0 seed 0: its inputs have 67108864 MiB, more than the 1 MiB of --max-mib"
        in run.out
    )
    assert (
        "values/forward config 0 seed 0: its inputs have 4 MiB, more than the 1 MiB of --max-mib" in run.out
    )
