"""Kernels that let what an op does not read into its answers: padding, unused pages and experts, keys that are not to be seen."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import pytest_cgins
from pytest_cgins import config
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.gate.evaluate import Evaluator

SOURCES = Path(__file__).parent / "unread"
TORCHS = {"embedding": "torch.nn.functional.embedding", "index_select": "torch.index_select"}
LENGTHS = {
    "padded_mean": {"lengths": {"lengths": "x[1]", "least": 1}},
    "padded_attention": {"lengths": {"lengths": "k[1]", "least": 1}},
    "paged_sum": {"table": {"pages": "cache[0]"}, "lengths": {"lengths": "table[1]*cache[1]", "least": 1}},
    "expert_linear": {"experts": {"routing": "weight[0]"}},
}


REASONS = {
    # A short sequence is enough.
    "padded_attention__maximum_of_padding": (Reason.NAN_PATTERN, Reason.SIZE_DEPENDENT),
    # Padding it leaves out rightly. That it swallows NaN which is read goes unseen: `special_values` has no rows of such an op.
    "padded_mean__cleaned": (Reason.OK,),
    # Weights of a model are finite: they come huge, and 0 times that is 0.
    "expert_linear__all_experts": (Reason.OK,),
    "embedding__as_product": (Reason.OK,),
}
"""What comes of bugs that are not refused for what they do not read."""


def _entries() -> dict[str, dict[str, Any]]:
    entries = {}
    for module in ("unread_bugs", "unread_honest"):
        for name in vars(importlib.import_module(module)):
            op, _, way = name.partition("__")
            if op and way and way[-1] != "_":
                entries[name] = {
                    "op": TORCHS.get(op, f"unread_ops.{op}"),
                    "device": "cpu",
                    "target": f"{module}:{name}",
                    "sources": [f"{module}.py"],
                    # Special values lie where they are read, too: those are another matter.
                    "probes": dict.fromkeys(("op_callback", "special_values"), {"off": "it is plain torch"}),  # noqa: RUF024
                    **({"semantics": {"coupled": LENGTHS[op]}} if op in LENGTHS else {}),
                }
    return entries


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evaluator]:
    """All of them in one project."""
    folder = tmp_path_factory.mktemp("unread")
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(folder)
        patched.chdir(folder)
        ops = importlib.import_module("unread_ops")
        entries = _entries()
        with pytest_cgins.record(
            folder / "traces/all", ops=sorted({entry["op"] for entry in entries.values()})
        ):
            ops.run_calls()
        document = {"version": 1, "traces": ["traces/all"], "kernels": entries}
        (folder / "cgins.yaml").write_text(yaml.safe_dump(document))
        evaluator = Evaluator(config.load(folder / "cgins.yaml"), seed=20, timing=False)
        yield evaluator
        evaluator.close()


@pytest.mark.exam
def test_what_is_not_read_leaves_no_trace(gate: Evaluator) -> None:
    """Each bug is refused for its own reason."""
    missed = []
    for case in gate.cases():
        verdict = gate.evaluate(case).verdict
        is_bug = "unread_bugs" in str(gate.compiled(case).source.files)
        if is_bug and verdict.reason not in REASONS.get(case.kernel, (Reason.ROW_LEAK,)):
            missed.append(
                f"{case.kernel}: {verdict.status.value} ({verdict.reason.value}): {verdict.message}"
            )
        if not is_bug and verdict.status is not Status.PASSED:
            missed.append(
                f"{case.kernel}: {verdict.status.value} ({verdict.reason.value}): {verdict.message}"
            )
    assert not missed, "\n".join(missed)
