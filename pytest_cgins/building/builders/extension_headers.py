"""Lean headers: torch's own headers without the parts that a source cannot be using.

`torch/types.h` takes 20 s of nvcc, nearly all for declarations of two thousand ops and of the interpreter's
types. The lean headers are torch's own text: `ATen/core/Tensor.h` and the small headers beside it, the header of
each op whose name occurs in the source, and the factories of namespace torch that do. A source that needs more
does not compile with them, and is then compiled with the whole headers. So what has to be ruled out here is only
that it compiles and means something else; `obstacle` names the constructs for which that could be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from pytest_cgins.building.contracts.cxx import INCLUDE, code_of

BASE = "cgins_lean.h"
PYTHON = "cgins_lean_python.h"
OPS = "cgins_lean_ops.h"
IN_BASE = "empty_like"  # the op that ATen/TensorOperators.h includes
VARIABLE = "cgins_lean_variable.h"

VERSION = "torch/csrc/api/include/torch/version.h"
_HEADERS: dict[str, list[str]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
# <math.h> and <stdlib.h> bring the overloads of abs into the global namespace: without them abs(-0.5f) is 0.
BASE_INCLUDES, PYTHON_INCLUDES = _HEADERS["base"], _HEADERS["python"]
# Headers that a source may include itself, and that would bring in everything.
REPLACED = _HEADERS["replaced"]
# Those of them that have torch's version, which sources ask for by #if.
VERSIONED = ("torch/extension.h", "torch/all.h", "torch/torch.h")
# What else a name in the source asks for.
WANTED = {
    "ATen/Context.h": r"\bglobalContext\b",
    "ATen/ExpandUtils.h": r"\b(?:expand_(?:inplace|outplace|size)|infer_size|sum_to)\b",
    "ATen/Parallel.h": r"\b(?:parallel_for|parallel_reduce|get_num_threads|set_num_threads|in_parallel_region)\b",
    "ATen/ScalarOps.h": r"\b(?:scalar_to_tensor|wrapped_scalar_tensor)\b",
    "ATen/TensorGeometry.h": r"\bTensorGeometry\b",
    "ATen/TensorIndexing.h": r"\b(?:indexing|TensorIndex)\b|\bindex(?:_put_)?\s*\(",
    "ATen/TensorUtils.h": r"\b(?:TensorArg|TensorGeometryArg|CheckedFrom)\b",
    "ATen/core/IListRef.h": r"\bI\w*ListRef\b",
    "ATen/core/ivalue.h": r"\b(?:IValue|ivalue|c10::List|c10::Dict)\b", "map": r"\bstd::(?:multi)?map\b",
    "set": r"\bstd::(?:multi)?set\b", "list": r"\bstd::list\b", "chrono": r"\bstd::chrono\b",
    "thread": r"\bstd::(?:thread|this_thread)\b", "iomanip": r"\bstd::set(?:w|precision|fill)\b",
    "torch/library.h": r"\bTORCH_LIBRARY\w*|\btorch::(?:Library|CppFunction)\b|\bDispatcher\b",
}  # fmt: skip
HEAVY_PRELUDE = re.compile(
    r"^#include <ATen/(?:Context|DeviceGuard|TensorUtils|TracerMode)\.h>\n", re.MULTILINE
)
CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:el)?if(?:n?def)?\b(.*)$", re.MULTILINE)
TORCH_MACRO = re.compile(r"\b(?:AT|C10|CAFFE2|PYBIND11|THC?|TORCH(?!_VERSION\w*\b|_EXTENSION_NAME\b))_\w+")
FACTORY = re.compile(r"^(?:template[^\n]*\n)?inline at::Tensor (\w+)\(.*?^\}\n", re.MULTILINE | re.DOTALL)
# torch::autograd::make_variable, without the header of the graph's nodes. The metadata that it makes for
# requires_grad is what set_requires_grad makes.
MAKE_VARIABLE = Path(__file__).with_name("make_variable.h").read_text(encoding="utf-8")


def obstacle(texts: Sequence[str]) -> str:
    """Why sources are not compiled with lean headers; "" if they may be.

    Args:
        texts: the sources, and the headers of theirs that they include.
    """
    for text in texts:
        code = code_of(text)
        if found := re.search(
            r"\btorch::(?:nn|optim|data|jit|fft|linalg|special|nested|sparse|serialize|autograd|cuda|mps|xpu|"
            r"save|load|manual_seed|profiler|inductor)\b", code,
        ):  # fmt: skip
            return f"it uses {found[0]}"
        # Names of namespace torch that the lean headers lack would stand for others, silently.
        if re.search(r"\busing\s+namespace\s+(?:torch|at::native)\s*;", code):
            return "it has using namespace torch"
        for condition in CONDITION.findall(code.replace("\\\n", " ")):
            if found := TORCH_MACRO.search(condition):
                return f"it asks whether {found[0]} is defined"
    return ""


def base_files(include: Path) -> dict[str, str]:
    """The headers that do not depend on a source, by name.

    Args:
        include: folder of torch's headers.
    """
    types = include / "torch/csrc/api/include/torch/types.h"
    aliases = INCLUDE.sub("", types.read_text(encoding="utf-8"))
    files = {
        BASE: "#pragma once\n#define AT_PER_OPERATOR_HEADERS 1\n"
        f'{_includes(include, BASE_INCLUDES)}#include "cgins_lean_types.h"\n',
        PYTHON: f'#pragma once\n#include "{BASE}"\n'
        f"{_includes(include, PYTHON_INCLUDES)}namespace py = pybind11;\n",
        "cgins_lean_types.h": aliases,
        "ATen/DeviceGuard.h": _lean_device_guard(include),
        f"ATen/ops/{IN_BASE}.h": _lean_op(include, IN_BASE),
        VARIABLE: MAKE_VARIABLE,
    }
    files |= dict.fromkeys(REPLACED, f'#pragma once\n#include "{BASE}"\n')
    return files | {name: files[name] + _includes(include, [VERSION]) for name in VERSIONED}


def source_files(include: Path, texts: Sequence[str]) -> dict[str, str]:
    """The headers that bring what sources name: those of ops, factories, and whatever else is `WANTED`.

    Args:
        include: folder of torch's headers.
        texts: the sources, and the headers of theirs that they include.
    """
    code = code_of("\n".join(texts))
    names = set(re.findall(r"[A-Za-z_]\w*", code))
    if not re.search(r"\btensor\s*[({]", code):
        # The name of a variable far more often than of the factory, whose types are heavy.
        names.discard("tensor")
    factories = _factories(include, names)
    ops = sorted(name for name in names | set(factories) if (include / f"ATen/ops/{name}.h").is_file())
    files = {f"ATen/ops/{name}.h": _lean_op(include, name) for name in ops if name != IN_BASE}
    wanted = [
        header
        for header, pattern in WANTED.items()
        if re.search(pattern, code) and ("/" not in header or (include / header).is_file())
    ]
    if any("ITensorListRef" in text for text in files.values()):
        wanted.append("ATen/core/IListRef.h")
    if "TensorDataContainer" in "".join(factories.values()):
        wanted.append("torch/csrc/api/include/torch/detail/TensorDataContainer.h")
    lines = ["#pragma once", *(f"#include <{header}>" for header in dict.fromkeys(wanted))]
    lines += [f"#include <{name}>" for name in files]
    if factories:
        lines += [
            f"#include <{VARIABLE}>",
            "namespace torch {",
            "using Deleter = std::function<void(void*)>;",
        ]
        lines += [*factories.values(), "}"]
    return {**files, OPS: "\n".join(lines) + "\n"}


def _includes(include: Path, names: Sequence[str]) -> str:
    """Lines that include the headers that this version of torch has."""
    present = [name for name in names if "/" not in name or (include / name).is_file()]
    return "".join(f"#include <{name}>\n" for name in present)


def _lean_op(include: Path, name: str) -> str:
    """The header of an op without what only its neighbours in torch need."""
    return HEAVY_PRELUDE.sub("", (include / f"ATen/ops/{name}.h").read_text(encoding="utf-8"))


def _lean_device_guard(include: Path) -> str:
    """`device_of` for tensors; the overload for lists would bring in the interpreter's types."""
    text = (include / "ATen/DeviceGuard.h").read_text(encoding="utf-8")
    of_lists = r"(?ms)^inline [^\n]*\bdevice_of\(ITensorListRef t\) \{.*?^\}\n"
    return re.sub(of_lists, "", text.replace("#include <ATen/core/IListRef.h>\n", ""))


def _factories(include: Path, names: set[str]) -> dict[str, str]:
    """Functions of namespace torch that hide those of at, by name: every overload of the names that occur."""
    path = include / "torch/csrc/autograd/generated/variable_factories.h"
    found: dict[str, str] = {}
    for match in FACTORY.finditer(path.read_text(encoding="utf-8")):
        if match[1] in names:
            body = match[0].replace("autograd::make_variable(", "autograd::cgins_make_variable(")
            found[match[1]] = found.get(match[1], "") + body
    return found
