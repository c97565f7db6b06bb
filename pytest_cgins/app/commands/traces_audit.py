"""`cgins traces audit`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins.app.commands.options import Subparsers, command, flag, option
from pytest_cgins.app.commands.record import add_trust, project_of, trust_named
from pytest_cgins.config import KernelEntry, load
from pytest_cgins.core import documents
from pytest_cgins.core.console import import_path, new_table, print_failures, print_table
from pytest_cgins.core.device import DEVICES, device_of
from pytest_cgins.core.errors import RandomOp, TraceError
from pytest_cgins.core.text import counted, upwards
from pytest_cgins.packs.store import PackReader, open_pack

if TYPE_CHECKING:
    from pytest_cgins.verify.audit import TraceAudit


def add_parsers(traces: Subparsers) -> None:
    """Add `audit` to `cgins traces`."""
    parser = command(
        traces,
        "audit  find traces that cannot tell a wrong kernel",
        audit,
        "Offer forged answers to every trace's own checks, at the tolerance of the kernels that cgins.yaml "
        "has for its op, and apply robust-kbench's filters of exploitable tasks, over five draws of fresh inputs. "
        "Exit status 1 if a trace cannot be replayed, and with --strict if one is WEAK, as under --cgins-strict.",
    )
    parser.add_argument("packs", nargs="+", type=Path, metavar="PACK")
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    option(parser, "--seed  of the first draw; default: 0", type=int, default=0)
    flag(parser, "--strict  exit status 1 if a trace is weak")
    flag(parser, "--json  print documents instead of tables")
    add_trust(parser)


def audit(args: argparse.Namespace) -> int:
    """Say of each pack which traces are weak, why, and what helps."""
    trust_named(args)
    failures: list[TraceError] = []
    found: dict[str, list[TraceAudit]] = {}
    for folder in args.packs:
        reader = open_pack(folder)
        with import_path(*project_of(folder), Path.cwd()):
            audits, random, failed = _audit(reader, folder, args)
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
    reader: PackReader, folder: Path, args: argparse.Namespace
) -> tuple[list[TraceAudit], list[str], list[TraceError]]:
    """Audits, traces that draw random numbers, and what failed."""
    from pytest_cgins.verify.audit import audit as audit_trace
    from pytest_cgins.verify.prepare_options import PrepareOptions

    audits: list[TraceAudit] = []
    random: list[str] = []
    failures: list[TraceError] = []
    device = device_of(args.device).case_name
    kernels = _kernels(folder)
    for trace in reader.pack.traces:
        gating = [kernel for kernel in kernels if kernel.op == trace.call.op]
        for kernel in gating or [KernelEntry(name="", op=trace.call.op, implementations=())]:
            options = PrepareOptions(declared=kernel.semantics, allow_tf32=kernel.allow_tf32)
            try:
                audits.append(
                    audit_trace(
                        trace,
                        reader,
                        device,
                        seed=args.seed,
                        tolerance=kernel.tolerance,
                        options=options,
                        kernel=kernel.name,
                    )
                )
            except RandomOp:
                random.append(f"{trace.call.op} {trace.signature}")
            except TraceError as error:
                failures.append(error)
    return audits, list(dict.fromkeys(random)), failures


def _kernels(folder: Path) -> list[KernelEntry]:
    """One kernel of each op, tolerance and semantics of the nearest cgins.yaml that names the pack."""
    file = upwards(folder.resolve())
    if file is None:
        return []
    config = load(file, require_traces=False, require_sources=False)
    if folder.resolve() not in [pack.resolve() for pack in config.traces]:
        return []
    asked: list[KernelEntry] = []
    for kernel in config.kernels:
        if not any(
            (kernel.op, kernel.tolerance, kernel.semantics, kernel.allow_tf32)
            == (one.op, one.tolerance, one.semantics, one.allow_tf32)
            for one in asked
        ):
            asked.append(kernel)
    return asked


def _document(audit: TraceAudit) -> dict[str, object]:
    document: dict[str, object] = documents.dump_python(audit)
    return {**document, "weak": audit.weak, "exploitable": audit.exploitable, "tripped": list(audit.tripped)}


def _print(folder: Path, audits: list[TraceAudit], random: list[str]) -> None:
    """Weak and exploitable traces with reason and remedy, and those that only trip a threshold."""
    table = new_table("", "op", "signature", "below 0.01", "why", "remedy")
    for one in sorted(audits, key=lambda one: (not one.weak, not one.accepted)):
        if one.accepted or one.tripped:
            why = (
                "; ".join(accepted.why for accepted in one.accepted) or "a matter of scale: no forgery passes"
            )
            remedy = "; ".join(dict.fromkeys(accepted.remedy for accepted in one.accepted))
            mark = "WEAK" if one.weak else "exploitable" if one.exploitable else ""
            mark += f" ({one.kernel})" if mark and one.kernel else ""
            table.add_row(mark, one.op, one.signature, ", ".join(one.tripped), why, remedy)
    if table.row_count:
        print_table(table)
    proposed = dict.fromkeys((one.op, said) for one in audits for said in one.proposed)
    for op, said in proposed:
        print(f"{op} returns indices, and of equal values any is right if cgins.yaml says so: {said}")
    weak = {one.trace for one in audits if one.weak}
    exploitable = {one.trace for one in audits if one.exploitable} - weak
    tripped = {one.trace for one in audits if one.tripped} - weak - exploitable
    shortcuts = f", {len(exploitable)} exploitable" if exploitable else ""
    traces = counted(len({one.trace for one in audits}), "trace")
    drawn = (
        f", {counted(len(random), 'draws random numbers and is', 'draw random numbers and are')} not audited"
        if random
        else ""
    )
    print(f"{folder}: {traces}, {len(weak)} weak{shortcuts}, {len(tripped)} below a threshold only{drawn}")
