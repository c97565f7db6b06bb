"""On a GPU: kernels that quantise, whose rows know their batch, or that know offsets and routings by heart; and right ones."""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

torch = pytest.importorskip("torch")

import pytest_cgins  # noqa: E402
from pytest_cgins import config  # noqa: E402
from pytest_cgins.core.verdict import Status  # noqa: E402
from pytest_cgins.gate.evaluate import Evaluator  # noqa: E402
from tests.adversarial import project as collection  # noqa: E402
from tests.adversarial.specimens import ADVERSARIAL, HONEST, Specimen, collect  # noqa: E402
from tests.planted import test_low_bits as low_bits  # noqa: E402
from tests.planted.coupled import project as coupled  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

CUDA_BUGS = frozenset({
    "row_scaled__column_of_the_tile", "mxfp8_values__device_shifted_code", "uint4_groups__device_next_group",
    "per_token__device_toward_zero",
})  # fmt: skip
"""Kernels in CUDA C++ of tests/planted/low_bits that are wrong."""
ON_A_CPU_ALONE = frozenset({"packed_weights", "scaled_result"})
"""Ops of tests/planted/low_bits that torch does not have on a GPU, or not in its older releases."""
ON_THEIR_DEVICE = """

def _on_its_device(function):
    def called(*args, **kwargs):
        tensors = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor)]
        with torch.device(tensors[0].device if tensors else "cpu"):
            return function(*args, **kwargs)

    return functools.wraps(function)(called)


import functools as functools, inspect as inspect, torch as torch
for _name, _function in list(globals().items()):
    if inspect.isfunction(_function) and _function.__module__ == __name__ and _name != "_on_its_device":
        globals()[_name] = _on_its_device(_function)
"""
"""Has tensors that functions of a module make by themselves lie where those that they take do."""


def _moved(folder: Path) -> None:
    """Make modules that were written for a CPU run wherever their arguments lie."""
    for file in folder.glob("*.py"):
        if not file.stem.endswith("_ops"):
            file.write_text(file.read_text() + ON_THEIR_DEVICE)


def _verdicts(evaluator: Evaluator) -> dict[str, list[tuple[Status, str]]]:
    """Of all cases, by kernel."""
    verdicts: dict[str, list[tuple[Status, str]]] = {}
    for case in evaluator.cases():
        verdict = evaluator.evaluate(case).verdict
        told = f"{case.name}: {verdict.status.value} ({verdict.reason.value}): {verdict.message}"
        verdicts.setdefault(case.kernel, []).append((verdict.status, told))
        print(told.partition("\n")[0])
    return verdicts


_NOT_THERE = re.compile("not implemented|NOT_SUPPORTED")
"""What torch raises for lack of an implementation: no bug was seen."""


def _all_fail(verdicts: dict[str, list[tuple[Status, str]]]) -> None:
    wrong = {Status.INCORRECT, Status.SUSPECT, Status.RUNTIME_ERROR}
    missed = [
        told
        for cases in verdicts.values()
        if not any(status in wrong and not _NOT_THERE.search(told) for status, told in cases)
        for _, told in cases
    ]
    assert not missed, "\n".join(missed)


def _all_pass(verdicts: dict[str, list[tuple[Status, str]]]) -> None:
    accused = [told for cases in verdicts.values() for status, told in cases if status is not Status.PASSED]
    assert not accused, "\n".join(accused)


def _low_bits(folder: Path, family: str, kind: str) -> Path:
    """Kernels in Python of a family, and those in CUDA C++ of its ops: `bugs` or `honest`."""
    shutil.copytree(
        low_bits.SOURCES, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "*.cpp")
    )
    _moved(folder)
    module = f"{family}_{kind}"
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(folder)
        for name in (f"{family}_ops", module):
            sys.modules.pop(name, None)
        ops, kernels = importlib.import_module(f"{family}_ops"), importlib.import_module(module)
        sources = {
            file.stem: {
                "contract": "device" if "cgins-launch" in file.read_text() else "launcher",
                "source": file.name,
            }
            for file in low_bits.SOURCES.glob("*.cu")
            if hasattr(ops, file.stem.partition("__")[0]) and (file.stem in CUDA_BUGS) == (kind == "bugs")
        }
        python = {
            name: {
                "target": f"{module}:{name}",
                "sources": [f"{module}.py"],
                "probes": {"op_callback": {"off": "it is Python"}},
            }
            for name in vars(kernels)
            if "__" in name.strip("_") and name.partition("__")[0] not in ON_A_CPU_ALONE
        }
        entries = {
            name: {"op": f"{family}_ops.{name.partition('__')[0]}", "device": "cuda", **entry}
            for name, entry in {**python, **sources}.items()
        }
        names = sorted({entry["op"] for entry in entries.values()})
        with pytest_cgins.record(folder / "traces/all", ops=names):
            # On a CPU older releases of torch lack scales of rows.
            ops.run_calls(*["cuda"] * (family == "scaled"))
        for name in (f"{family}_ops", module):
            sys.modules.pop(name, None)
    file = folder / "cgins.yaml"
    file.write_text(yaml.safe_dump({"version": 1, "traces": ["traces/all"], "kernels": entries}))
    return file


def _coupled(folder: Path, module: str) -> Path:
    file = coupled.make(folder, module)
    _moved(folder)
    document = yaml.safe_load(file.read_text())
    for name in [name for name in document["kernels"] if name.endswith("_cpp")]:
        del document["kernels"][name]
    for entry in document["kernels"].values():
        entry["implementations"][0]["device"] = "cuda"
    file.write_text(yaml.safe_dump(document))
    return file


def _gated(file: Path, probes: str = "full") -> dict[str, list[tuple[Status, str]]]:
    evaluator = Evaluator(config.load(file), seed=20, timing=False, probes=probes)
    try:
        return _verdicts(evaluator)
    finally:
        evaluator.close()


@pytest.mark.parametrize("family", low_bits.FAMILIES)
def test_bugs_in_few_bits_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str) -> None:
    """Those of tests/planted/low_bits, by arithmetic of the GPU."""
    monkeypatch.chdir(tmp_path)
    verdicts = _gated(_low_bits(tmp_path, family, "bugs"))
    _all_fail(
        {name: cases for name, cases in verdicts.items() if name in low_bits.REASONS or name in CUDA_BUGS}
    )


@pytest.mark.parametrize("family", low_bits.FAMILIES)
def test_what_is_right_in_few_bits_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    """Reciprocals, fp64, blocks, one pass."""
    monkeypatch.chdir(tmp_path)
    _all_pass(_gated(_low_bits(tmp_path, family, "honest")))


def test_what_knows_its_routing_by_heart_fails(tmp_path: Path) -> None:
    """On inputs alone: no probe is on."""
    _all_fail(_gated(_coupled(tmp_path, "planted"), probes="off"))


def test_what_follows_its_routing_passes(tmp_path: Path) -> None:
    """With every probe."""
    _all_pass(_gated(_coupled(tmp_path, "honest")))


HOST_ALONE = ("numpy", "_ties", "ctypes", "torch.Generator(")
"""What kernels of the collection use that compute on the host whatever they are given."""


def _of_rows(folder: Path) -> list[Specimen]:
    """Kernels in Python of the collection that the probe of invariance is about, as kernels for a GPU."""
    about = [each for each in collect(folder) if each.file.suffix == ".py" and each.device == "cpu"]
    about = [each for each in about if not each.flags & {"interpret", "timing", "base", "sandbox"}]
    about = [each for each in about if not any(word in each.file.read_text() for word in HOST_ALONE)]
    if folder == ADVERSARIAL:
        about = [each for each in about if each.way == 27]
    return [replace(each, flags=each.flags | {"gpu"}) for each in about]


@pytest.fixture(scope="module", params=[ADVERSARIAL, HONEST], ids=["adversarial", "honest"])
def rows(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[collection.Gate, list[Specimen]]]:
    """The gate of one collection."""
    specimens = _of_rows(request.param)
    folder = tmp_path_factory.mktemp("rows")
    loaded = collection.make(folder, specimens, device="cuda")
    _moved(folder / "kernels")
    opened = collection.Gate(loaded, specimens, collection.SEED)
    yield opened, specimens
    opened.close()


def test_rows_of_a_batch(rows: tuple[collection.Gate, list[Specimen]]) -> None:
    """Rows that know their batch fail; right kernels pass."""
    gate, specimens = rows
    wrong = []
    for specimen in specimens:
        for evaluation in gate.evaluate(specimen):
            verdict = evaluation.verdict
            told = (
                f"{evaluation.case.name}: {verdict.status.value} ({verdict.reason.value}): {verdict.message}"
            )
            print(told.partition("\n")[0])
            if (verdict.status.outcome == "fail") != bool(specimen.caught_by):
                wrong.append(told)
    assert specimens
    assert not wrong, "\n".join(wrong)
