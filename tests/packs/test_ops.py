from __future__ import annotations

import sys

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch.overrides import TorchFunctionMode

import pytest_cgins
from pytest_cgins.core.errors import RecordError, TraceError
from pytest_cgins.packs import ops


@pytest_cgins.mark(semantics={"roles": {"x": "index"}})
def with_semantics(x: torch.Tensor) -> torch.Tensor:
    """An op of these tests."""
    return 2 * x


@pytest.mark.parametrize(
    ("func", "name"),
    [
        (F.gelu, "torch.nn.functional.gelu"),
        (F.layer_norm, "torch.nn.functional.layer_norm"),
        (torch.relu_, "torch.nn.functional.relu_"),
        (torch.Tensor.add_, "torch.Tensor.add_"),
        (torch.Tensor.__rsub__, "torch.Tensor.__rsub__"),
        (torch.ops.aten.add, "torch.ops.aten.add"),
        (torch.ops.aten.add.Tensor, "torch.ops.aten.add.Tensor"),
        (F.max_pool2d, "torch.nn.functional.max_pool2d"),
    ],
)
def test_names_lead_back_to_their_ops(func: object, name: str) -> None:
    """qualified_name and resolve are inverse for every form of torch op."""
    assert ops.qualified_name(func) == name
    assert ops.resolve(name) == func


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("torch.nn.functional.gelo", "did you mean torch.nn.functional.gelu?"),
        ("torch.softmaxx", "did you mean torch.softmax?"),
        ("no_such_package.op", "No module named 'no_such_package'"),
        ("gelu", "did you mean torch.nn.functional.gelu?"),
        ("torch.nn..gelu", "is not a qualified name"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, says: str) -> None:
    """The error names the op, and the right name or what to check."""
    with pytest.raises(TraceError) as caught:
        ops.resolve(name)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["os.system", "torch.load", "torch.hub.load", "torch.ops.load_library", "subprocess.run", "torch.nn",
     "torch.ops.aten.from_file", "torch.ops.aten.from_file.out", "torch.ops.aten.save",
     "torch.nn.functional.GRID_SAMPLE_PADDING_MODES", "torch.embedding_renorm_"],
)  # fmt: skip
def test_a_pack_cannot_have_other_code_run(name: str) -> None:
    """Only ops are resolved: a hostile pack may name anything."""
    with pytest.raises(TraceError, match="neither a torch op nor a marked function"):
        ops.resolve(name)


@pytest.mark.parametrize("name", ["this.s", "unittest.__main__.main", "this.s@backward(x)"])
def test_a_pack_cannot_have_a_script_of_python_run(name: str) -> None:
    """A module of the standard library is not even imported: some do things when they are."""
    with pytest.raises(TraceError, match="neither a torch op nor a marked function"):
        ops.resolve(name)
    assert not {"this", "unittest.__main__"} & sys.modules.keys()


def test_a_marked_function_is_seen_as_one_op(project) -> None:
    """A function mode sees the marked function, and outside of modes it runs as it was."""
    module = project(
        "import pytest_cgins, torch\n@pytest_cgins.mark\ndef twice(x, *, by=2):\n    'Doc.'\n    return x * by\n"
    )
    seen = []

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(ops.qualified_name(func))
            return func(*args, **(kwargs or {}))

    x = torch.ones(2)
    assert torch.equal(module.twice(x, by=3), x * 3)
    with Watch():
        module.twice(x)
    assert seen == [f"{module.__name__}.twice"]
    assert ops.resolve(seen[0]) is module.twice
    assert module.twice.__doc__ == "Doc."


def test_a_marked_function_compiles_without_graph_break(project) -> None:
    """torch.compile takes a marked function whole."""
    module = project("import pytest_cgins\n@pytest_cgins.mark\ndef twice(x):\n    return x * 2\n")
    compiled = torch.compile(lambda x: module.twice(x) + 1, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))


def test_only_functions_that_can_be_imported_are_marked() -> None:
    """A local function, a class of torch or of anything but modules is refused where it is decorated."""

    def local(x):
        return x

    with pytest.raises(RecordError, match="made at run time"):
        ops.mark(local)
    with pytest.raises(RecordError, match=r"takes a function or an nn\.Module class, not <class .dict.>"):
        ops.mark(dict)
    with pytest.raises(RecordError, match=r"needs no mark: .*\n→ record it with ops=\[\"torch.nn.Linear\"\]"):
        ops.mark(torch.nn.Linear)


def test_ops_with_aliases_have_the_name_that_is_written() -> None:
    """torch.spmm is torch.mm: a kernel for torch.mm must find its traces."""
    assert torch.spmm == torch.mm
    assert ops.qualified_name(torch.mm) == "torch.mm"
    assert ops.resolve("torch.spmm") == ops.resolve("torch.mm")


def test_mark_takes_what_is_to_be_known_of_the_op() -> None:
    """The declaration is found by the op's name; functions without one say nothing."""
    assert dict(ops.declared_of(f"{__name__}.with_semantics").roles) == {"x": "index"}
    assert with_semantics(torch.ones(2)).tolist() == [2, 2]
    assert ops.declared_of("torch.nn.functional.gelu@backward(input)").names == ()


def test_mark_refuses_semantics_that_say_nothing() -> None:
    """The message has the word and the nearest known one."""
    with pytest.raises(
        RecordError, match=r'pytest_cgins\.mark: "x" in roles of semantics is "indx"'
    ) as caught:
        pytest_cgins.mark(semantics={"roles": {"x": "indx"}})
    assert "index" in str(caught.value.remedy)
