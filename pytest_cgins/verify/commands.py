"""`cgins traces audit`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins import documents
from pytest_cgins.errors import RandomOp, TraceError
from pytest_cgins.trace.console import (
    add_trust,
    import_path,
    new_table,
    print_failures,
    print_table,
    project_of,
    trust_named,
)
from pytest_cgins.trace.store import PackReader, open_pack

if TYPE_CHECKING:
    from pytest_cgins.verify.audit import TraceAudit


def add_parsers(traces: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `audit` to `cgins traces`."""
    parser = traces.add_parser(
        "audit",
        help="find traces that cannot tell a wrong kernel",
        description="Offer forged answers to every trace's own checks, and apply robust-kbench's filters of "
        "exploitable tasks, over five draws of fresh inputs. Exit status 1 if a trace cannot be replayed, and "
        "with --strict if one is weak.",
    )
    parser.add_argument("packs", nargs="+", type=Path, metavar="PACK")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seed", type=int, default=0, help="of the first draw; default: 0")
    parser.add_argument("--strict", action="store_true", help="exit status 1 if a trace is weak")
    parser.add_argument("--json", action="store_true", help="print documents instead of tables")
    add_trust(parser)
    parser.set_defaults(run=audit)


def audit(args: argparse.Namespace) -> int:
    """Say of each pack which traces are weak, why, and what helps."""
    trust_named(args)
    failures: list[TraceError] = []
    found: dict[str, list[TraceAudit]] = {}
    for folder in args.packs:
        reader = open_pack(folder)
        with import_path(*project_of(folder), Path.cwd()):
            audits, random, failed = _audit(reader, args)
        failures += failed
        found[str(folder)] = audits
        if not args.json:
            _print(folder, audits, random)
    if args.json:
        print(json.dumps({name: list(map(_document, audits)) for name, audits in found.items()}, indent=1))
    print_failures(failures)
    weak = any(one.weak for audits in found.values() for one in audits)
    return 1 if failures or (args.strict and weak) else 0


def _audit(
    reader: PackReader, args: argparse.Namespace
) -> tuple[list[TraceAudit], list[str], list[TraceError]]:
    """Audits, traces that draw random numbers, and what failed."""
    from pytest_cgins.config import Tolerance
    from pytest_cgins.verify.audit import audit as audit_trace

    audits: list[TraceAudit] = []
    random: list[str] = []
    failures: list[TraceError] = []
    device = "cuda:0" if args.device == "cuda" else "cpu"
    for trace in reader.pack.traces:
        try:
            audits.append(audit_trace(trace, reader, device, seed=args.seed, tolerance=Tolerance()))
        except RandomOp:
            random.append(f"{trace.call.op} {trace.signature}")
        except TraceError as error:
            failures.append(error)
    return audits, random, failures


def _document(audit: TraceAudit) -> dict[str, object]:
    document: dict[str, object] = documents.dump_python(audit)
    return {**document, "weak": audit.weak, "tripped": list(audit.tripped)}


def _print(folder: Path, audits: list[TraceAudit], random: list[str]) -> None:
    """Weak traces with reason and remedy, and those that only trip a threshold."""
    table = new_table("", "op", "signature", "below 0.01", "why", "remedy")
    for one in sorted(audits, key=lambda one: not one.weak):
        if one.weak or one.tripped:
            why = (
                "; ".join(accepted.why for accepted in one.accepted) or "a matter of scale: no forgery passes"
            )
            remedy = "; ".join(dict.fromkeys(accepted.remedy for accepted in one.accepted))
            mark = "WEAK" if one.weak else ""
            table.add_row(mark, one.op, one.signature, ", ".join(one.tripped), why, remedy)
    if table.row_count:
        print_table(table)
    weak = sum(one.weak for one in audits)
    tripped = sum(not one.weak and bool(one.tripped) for one in audits)
    drawn = f", {len(random)} draw random numbers and are not audited" if random else ""
    print(f"{folder}: {len(audits)} traces, {weak} weak, {tripped} below a threshold only{drawn}")
