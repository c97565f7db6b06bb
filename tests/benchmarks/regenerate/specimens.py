"""Wrong and right kernels of the tests in one form, without comments and names that tell which they are."""

from __future__ import annotations

import ast
import importlib
import json
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from bugs import REPOSITORY

import pytest_cgins
from pytest_cgins.core.verdict import Reason
from pytest_cgins.regenerate.static_check.tokens import TOKEN

sys.path.insert(0, str(REPOSITORY))

import torch

from tests.adversarial import calls
from tests.adversarial import specimens as collected
from tests.gpu import test_large_indices_gpu, test_numbers_gpu
from tests.planted import (
    edits,
    large_calls,
    outcome,
    project,
    test_drawn,
    test_large_indices,
    test_low_bits,
    test_unread,
)
from tests.planted.calls import OPS

PLANTED = Path(edits.__file__).parent
RESULTS = REPOSITORY / "tests/benchmarks/results"
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "adversarial": (), "planted": (), "low_bits": ("quantize_ops", "scaled_ops", "packed_ops"), "drawn": ("drawn_ops",),
    "unread": ("unread_ops",), "large_indices": ("large_ops",), "device_order": (),
}  # fmt: skip
"""Each has a project of its own; the modules with its ops, if they are not torch's."""
sys.path += [str(PLANTED / family) for family in FAMILIES]
_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_PLAIN = {"op_callback": {"off": "it is plain torch"}}
_SHARED = re.compile(r'#include "(\w+\.\w+)"|from kernels(?:\.| import )(\w+)')
_OF_CONTRACT = re.compile(r"// cgins|//\s+(?:args|block|grid|require|shared)=")
_TELLING = {"honest": "plain", "planted": "kernel", "wrong": "kernel"}


@dataclass(frozen=True, kw_only=True)
class Specimen:
    """One kernel."""

    family: str
    """Whose project it belongs in."""
    kind: str
    """The family, or what of it: cheats, planted bugs of a device, kernels in Python."""
    name: str
    """As its tests call it."""
    op: str
    """What it replaces."""
    device: str
    """`cpu` or `cuda`."""
    files: Mapping[str, str]
    """Texts by name, the main one first."""
    reason: str = ""
    """First of the codes by which it is refused; "" for a right one."""
    packs: tuple[str, ...] = ("all",)
    """Those of the project that it is gated on."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of its entry."""
    flags: tuple[str, ...] = ()
    """Its implementation's."""

    @property
    def contract(self) -> str:
        """By its text, as tests have it."""
        main = next(iter(self.files))
        text = self.files[main]
        if main.endswith(".py"):
            return "python"
        if "cgins-launch:" in text:
            return "device"
        return "launcher" if "cgins:" in text else "torch-extension"

    @property
    def is_plain_python(self) -> bool:
        """Whether it is neither compiled nor Triton."""
        return self.contract == "python" and "import triton" not in "".join(self.files.values())

    def write(self, folder: Path, name: str) -> dict[str, str]:
        """Its files in a folder of a project, under neutral names, and cgins.yaml with this kernel alone; texts by path."""
        names = {
            old: f"{'shared' if number else 'kernel'}{number or ''}{Path(old).suffix}"
            for number, old in enumerate(self.files)
        }
        texts = {f"{name}/{names[old]}": self._neutral(text, names, name) for old, text in self.files.items()}
        (folder / name).mkdir()
        for path, text in texts.items():
            (folder / path).write_text(text)
        main = next(iter(texts))
        where = {"target": f"{name}.kernel:kernel"} if main.endswith(".py") else {"source": main}
        language = (
            "triton"
            if "import triton" in texts[main]
            else {".cpp": "cpp", ".cu": "cuda"}.get(Path(main).suffix, "python")
        )
        implementation = {"name": language, "device": self.device, "contract": self.contract, **where}
        implementation |= {"entry": "kernel"} if self.contract == "torch-extension" else {}
        implementation |= {"flags": [*self.flags]} if self.flags else {}
        kernel = self.op.rpartition(".")[2].partition("@")[0]
        document = {
            "version": 1,
            "traces": [f"traces/{pack}" for pack in self.packs],
            "kernels": {kernel: {"op": self.op, **self.extra, "implementations": [implementation]}},
        }
        (folder / "cgins.yaml").write_text(yaml.safe_dump(document))
        return texts

    def _neutral(self, text: str, names: Mapping[str, str], folder: str) -> str:
        text = python_code(text) if next(iter(self.files)).endswith(".py") else cpp_code(text)
        for old, new in names.items():
            module, stem = Path(old).stem, Path(new).stem
            text = text.replace(f'"{old}"', f'"{new}"').replace(
                f"from kernels.{module} ", f"from {folder}.{stem} "
            )
            text = text.replace(f"from kernels import {module}", f"from {folder} import {stem} as {module}")
        own = {self.name: "kernel"} if "kernel.py" in self.files else {}
        for word, other in {**own, **_TELLING}.items():
            text = text.replace(word, other)
        return text


def cpp_code(text: str) -> str:
    """C++ or CUDA without comments, but for the lines that belong to a contract."""
    kept = (
        ""
        if match.lastgroup == "skipped" and match[0][0] == "/" and not _OF_CONTRACT.match(match[0])
        else match[0]
        for match in TOKEN.finditer(text)
    )
    return "\n".join(line.rstrip() for line in "".join(kept).split("\n") if line.strip()) + "\n"


def python_code(text: str) -> str:
    """Python without comments and docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            node.body = body[1:] or [ast.Pass()]
    return ast.unparse(tree) + "\n"


def one_function(text: str, name: str) -> str:
    """A module with one of its functions, and what that needs of the module."""
    nodes, needed = ast.parse(text).body, {name}
    kept: list[ast.stmt] = []
    for node in reversed(nodes):
        defined = {node.name} if isinstance(node, ast.FunctionDef | ast.ClassDef) else {
            each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        } | {(alias.asname or alias.name).partition(".")[0] for alias in getattr(node, "names", ())}  # fmt: skip
        if defined & needed or (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            kept.insert(0, node)
            needed |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return ast.unparse(ast.Module(kept, []))


def with_shared(file: Path) -> dict[str, str]:
    """A source, and what it shares with others beside it."""
    texts, waiting = dict[str, str](), [file]
    while waiting:
        path = waiting.pop(0)
        if path.name not in texts and path.exists():
            texts[path.name] = path.read_text()
            waiting += [
                path.with_name(header or f"{module}.py")
                for header, module in _SHARED.findall(texts[path.name])
            ]
    return texts


def pool() -> Iterator[Specimen]:
    """All that may be drawn."""
    for folder in (collected.ADVERSARIAL, collected.HONEST):
        for one in collected.collect(folder):
            device = "cuda" if one.language == "Triton" else one.device
            extra = dict(one.extra)
            yield Specimen(
                family="adversarial", kind="cheat" if one.way else "honest", name=one.name, op=one.op,
                device=device, files=with_shared(one.file), reason=next(iter(one.caught_by), ""), packs=one.packs,
                flags=tuple(extra.pop("flags", ())), extra=extra,
            )  # fmt: skip
    yield from _planted()
    wrong = {name: reason.value for name, reason in test_low_bits.REASONS.items()}
    for name in test_numbers_gpu.CUDA_BUGS:  # as another bug of its op
        wrong[name] = next(wrong[other] for other in wrong if other.startswith(name[: name.index("__")]))
    yield from _sources("low_bits", PLANTED / "low_bits", wrong, test_low_bits._op)
    overflows = {*test_large_indices.BUGS, *test_large_indices_gpu.BUGS}
    yield from _sources("large_indices", large_calls.SOURCES, dict.fromkeys(overflows, "index-overflow"),
                        lambda name: f"large_ops.{name.partition('__')[0]}", test_large_indices.MISSED)  # fmt: skip
    early = {
        file.stem: "device-order"
        for file in (PLANTED / "device_order").glob("*.cu")
        if "honest" not in file.stem
    }
    yield from _sources("device_order", PLANTED / "device_order", early, lambda _: "torch.nn.functional.relu")
    yield from _functions("low_bits", wrong)
    yield from _functions("drawn", {
        name: "argument-ignored" if told.startswith("other") else "size-dependent" for name, told in test_drawn.BUGS.items()
    })  # fmt: skip
    bugs = [
        node.name
        for node in ast.parse((PLANTED / "unread/unread_bugs.py").read_text()).body
        if hasattr(node, "name")
    ]
    found = {name: test_unread.REASONS.get(name, (Reason.ROW_LEAK,))[0] for name in bugs}
    yield from _functions(
        "unread", {name: reason.value for name, reason in found.items() if reason is not Reason.OK}
    )


def _planted() -> Iterator[Specimen]:
    """The edits of the example's kernels, refused as the last benchmark says; the example's own, and variants."""
    for device, results in (("cpu", "planted-cpu-seed1.json"), ("cuda", "planted-h200-seed1.json")):
        measured = json.loads((RESULTS / results).read_text())["bugs"]
        reasons = {bug["id"]: bug["reasons"][0] for bug in reversed(measured) if bug["reasons"]}
        sources = [(edits.planted(bug.id, device), reasons[bug.id]) for bug in outcome.listed()]
        sources += [
            (source, "") for source in edits.variants(device) if device == "cpu" or source.suffix == ".cu"
        ]
        for source, reason in sources:
            yield Specimen(
                family="planted", kind=f"planted {device}" if reason else f"example {device}", name=source.name,
                op=OPS[source.op], device=device, files={source.op + source.suffix: source.text, **source.headers},
                reason=reason, packs=tuple(_DTYPES),
            )  # fmt: skip


def _sources(
    family: str,
    folder: Path,
    wrong: Mapping[str, str],
    op_of: Callable[[str], str],
    left_out: Iterable[str] = (),
) -> Iterator[Specimen]:
    """Launchers and device kernels of a folder, a file each."""
    for file in sorted((*folder.glob("*.cpp"), *folder.glob("*.cu"))):
        if file.stem not in left_out:
            yield Specimen(
                family=family, kind=family, name=file.stem, op=op_of(file.stem), files=with_shared(file),
                device="cuda" if file.suffix == ".cu" else "cpu", reason=wrong.get(file.stem, ""),
            )  # fmt: skip


def _functions(family: str, reasons: Mapping[str, str]) -> Iterator[Specimen]:
    """Kernels in Python, a function each, of modules NAME_bugs and NAME_honest."""
    for module in FAMILIES[family]:
        for kind in ("bugs", "honest"):
            file = PLANTED / family / module.replace("_ops", f"_{kind}.py")
            for node in ast.parse(text := file.read_text()).body:
                name = getattr(node, "name", "")
                op = name.partition("__")[0]
                if "__" in name.strip("_") and not (kind == "bugs" and not reasons.get(name)):
                    torchs = {**{one: f"torch.{one}" for one in test_drawn.TORCHS}, **test_unread.TORCHS}
                    yield Specimen(
                        family=family, kind=f"{family} in Python", name=name, op=torchs.get(op, f"{module}.{op}"),
                        device="cpu", files={"kernel.py": one_function(text, name)}, extra={"probes": _PLAIN},
                        reason=reasons[name] if kind == "bugs" else "",
                    )  # fmt: skip


def record(folder: Path, family: str) -> None:
    """The packs of a family's project, and the modules of its ops."""
    folder.mkdir(parents=True)
    if family == "planted":
        project.make(folder, [], "cpu", list(_DTYPES.values()))
        return
    if family in ("adversarial", "device_order"):
        runs = calls.PACKS if family == "adversarial" else {"all": _relu_calls}
        for name, run in runs.items():
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "no call of")  # no pack has all ops
                with pytest_cgins.record(folder / "traces" / name, ops=list(calls.OPS)):
                    run()
        return
    for module in FAMILIES[family]:
        shutil.copy(PLANTED / family / f"{module}.py", folder)
    modules = [importlib.import_module(module) for module in FAMILIES[family]]
    ops = {one.op for one in pool() if one.family == family}
    with pytest_cgins.record(folder / "traces/all", ops=sorted(ops)):
        for module in modules:
            module.run_calls()


def _relu_calls() -> None:
    for shape in ((64, 1000), (1024, 2048)):
        torch.nn.functional.relu(torch.randn(shape).bfloat16())
