"""What becomes of the kernels that try to pass without being right, and of the honest ones beside them.

    python tests/benchmarks/adversarial.py [--device cpu|cuda] [--part wrong|honest|variants] [--only TEXT]
                                            [--seed N] [--json PATH]

Every kernel of tests/adversarial/kernels and tests/honest/kernels is built, run and judged with default settings,
and those of tests/planted/variants, too; but not what only the sandbox keeps out (test_sandboxed.py). Exit code 1
if a wrong kernel passed, was caught by another reason than its own, or if an honest one was called wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from pytest_cgins.core import documents  # noqa: E402
from pytest_cgins.core.session_report import Evaluation  # noqa: E402
from pytest_cgins.core.verdict import Status  # noqa: E402
from pytest_cgins.gate.evaluate import Evaluator  # noqa: E402
from pytest_cgins.timing.environment import describe  # noqa: E402
from tests.adversarial.project import SEED, gate  # noqa: E402
from tests.adversarial.specimens import ADVERSARIAL, HONEST, Specimen, collect  # noqa: E402
from tests.planted import edits, project  # noqa: E402

PARTS = ("wrong", "honest", "variants")
VARIANT_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Row:
    """One case."""

    kernel: str
    way: int
    disguise: str
    language: str
    device: str
    case: str
    status: str
    reason: str
    expected: tuple[str, ...]
    """Reason codes, any of which is right; () for an honest kernel."""
    is_timed: bool
    """Whether it is held against a base."""
    message: str
    ms: float
    """What of its build was not done ahead included."""

    @property
    def as_it_should(self) -> bool:
        """Caught by its own reason; for an honest kernel, passed."""
        if not self.expected and self.is_timed:  # it may be slower than its base
            return self.status not in (Status.SUSPECT.value, Status.INCORRECT.value)
        if not self.expected:
            return self.status == Status.PASSED.value
        return Status(self.status).outcome == "fail" and self.reason in self.expected


def main() -> int:
    options = _options()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        for collection, folder in (("wrong", ADVERSARIAL), ("honest", HONEST)):
            found = (one for one in collect(folder) if "sandbox" not in one.flags)
            specimens = [one for one in found if options.only in one.name]
            if collection in options.part:
                rows += _gated(Path(name) / collection, specimens, options.device, options.seed)
        if "variants" in options.part:
            rows += _variants(Path(name) / "variants", options)
    wrong, honest = ([row for row in rows if bool(row.expected) is kind] for kind in (True, False))
    print(_report(wrong, honest))
    if options.json:
        environment = documents.dump_python(describe("cpu" if options.device == "cpu" else "cuda:0"))
        table = [{**asdict(row), "as_it_should": row.as_it_should} for row in rows]
        result = {"environment": environment, "seed": options.seed, "cases": table}
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if all(row.as_it_should for row in rows) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--part", action="append", choices=PARTS, help="by default all")
    parser.add_argument("--only", default="", help="kernels with this text in their name")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.part = options.part or list(PARTS)
    return options


def _told(row: Row) -> Row:
    """Say how far it is, and what came out."""
    ending = "" if row.as_it_should else f", not as it should be: {' '.join(row.message.split())[:300]}"
    print(f"{row.kernel} {row.case}: {row.status} ({row.reason}) in {row.ms:.0f} ms{ending}", file=sys.stderr)
    return row


def _gated(folder: Path, specimens: Sequence[Specimen], device: str, seed: int) -> list[Row]:
    wanted = [one for one in specimens if one.device == device]
    if not wanted:
        return []
    with gate(folder, specimens, device=device, seed=seed) as opened:
        return [_told(_row(one, evaluation)) for one in wanted for evaluation in opened.evaluate(one)]


def _variants(folder: Path, options: argparse.Namespace) -> list[Row]:
    """The legitimate kernels of tests/planted."""
    loaded = project.make(folder, edits.variants(options.device), options.device, VARIANT_DTYPES)
    evaluator = Evaluator(loaded, seed=options.seed, timing=False)
    try:
        cases = [case for case in evaluator.cases() if options.only in case.kernel]
        evaluator.build_ahead(cases)
        return [_told(_row(None, evaluator.evaluate(case))) for case in cases]
    finally:
        evaluator.close()


def _row(specimen: Specimen | None, evaluation: Evaluation) -> Row:
    case, verdict = evaluation.case, evaluation.verdict
    return Row(
        kernel=case.kernel,
        way=specimen.way if specimen else 0,
        disguise=specimen.what if specimen else "variant of an example",
        language=specimen.language if specimen else {"cpu": "C++"}.get(case.device, "CUDA"),
        device=case.device,
        case=f"{case.pack}/{case.signature}",
        status=verdict.status.value,
        reason=verdict.reason.value,
        expected=specimen.caught_by if specimen else (),
        is_timed=specimen is not None and "base" in specimen.flags,
        message=verdict.message,
        ms=1000 * evaluation.seconds,
    )


def _report(wrong: Sequence[Row], honest: Sequence[Row]) -> str:
    """The table of wrong kernels, that of honest ones, and what is not as it should be."""
    lines = [
        "| kernel | way | disguise | language | device | reason | status | own reason | ms |",
        "|" + "---|" * 9,
    ]
    lines += [
        f"| {row.kernel} | {row.way} | {row.disguise} | {row.language} | {row.device} | {row.reason} | {row.status} "
        f"| {'yes' if row.as_it_should else 'no'} | {row.ms:.0f} |"
        for row in wrong
    ]
    lines += ["", "| honest kernel | what | language | device | cases | false alarms |", "|" + "---|" * 6]
    for name in dict.fromkeys(row.kernel for row in honest):
        mine = [row for row in honest if row.kernel == name]
        alarms = ", ".join(f"{row.case}: {row.status} ({row.reason})" for row in mine if not row.as_it_should)
        first = mine[0]
        lines.append(
            f"| {name} | {first.disguise} | {first.language} | {first.device} | {len(mine)} | {alarms or 'none'} |"
        )
    bad = [row for row in (*wrong, *honest) if not row.as_it_should]
    lines += [
        "",
        f"{len(wrong)} cases of wrong kernels, {len(honest)} of honest ones; not as they should be:",
    ]
    lines += [
        f"{row.kernel} {row.case}: {row.status} ({row.reason}), expected {' or '.join(row.expected) or 'PASSED'}: "
        f"{' '.join(row.message.split())[:300]}"
        for row in bad
    ]
    return "\n".join(lines if bad else [*lines[:-1], f"{lines[-1]} none"])


if __name__ == "__main__":
    raise SystemExit(main())
