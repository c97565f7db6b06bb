"""`cgins traces`: packs listed, shown, checked, compared, cleaned and audited, and a model's opinion of them."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins.app.commands.explain import add_parser as add_explain
from pytest_cgins.app.commands.options import Subparsers, add_model, command, flag, group, option, repeatable
from pytest_cgins.app.commands.schema import add_config_option
from pytest_cgins.config import KernelEntry, load
from pytest_cgins.core import documents
from pytest_cgins.core.call_text import arguments_line
from pytest_cgins.core.console import import_path, new_table, print_failures, print_table, size_of
from pytest_cgins.core.device import DEVICES, device_of
from pytest_cgins.core.errors import PackError, RandomOp, ReplayError, TraceError
from pytest_cgins.core.text import counted, upwards
from pytest_cgins.core.trace import Trace
from pytest_cgins.packs.store import MANIFEST, PackReader, open_pack, read_manifest
from pytest_cgins.recording import profile

if TYPE_CHECKING:
    from pytest_cgins.packs.difference import PackDifference, TraceDifference
    from pytest_cgins.regenerate.task_judge import Opinion, Task
    from pytest_cgins.verify.audit import TraceAudit


JUDGED_FOLDER = ".cgins/judged"


def add_parsers(subparsers: Subparsers) -> None:
    """Add the commands about traces to the `cgins` parser."""
    traces = group(subparsers, "traces  list, show, check and compare trace packs")
    parser = command(traces, "ls  list the packs under folders", ls)
    parser.add_argument("folders", nargs="*", type=Path, default=[Path()])
    parser = command(traces, "show  list the traces of a pack", show)
    parser.add_argument("pack", type=Path)
    option(parser, "--op  only ops whose name contains this")
    parser = command(traces, "verify  check a pack's files, and replay every trace", verify)
    parser.add_argument("packs", nargs="+", type=Path, metavar="pack")
    add_trust(parser)
    _add_maintenance(traces)
    _add_audit(traces)
    add_explain(traces)
    _add_judge(traces)


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add `--trust OP`, which `trust_named` acts on."""
    repeatable(parser, "--trust OP  run this unmarked function, if it is the op of a trace")


def trust_named(args: argparse.Namespace) -> None:
    """Let the ops of `--trust` be run."""
    from pytest_cgins.packs.ops import trust

    for op in args.trust:
        trust(op)


def imports_of(pack: Path) -> AbstractContextManager[None]:
    """Meanwhile look modules up from the nearest `cgins.yaml` at or above a pack, as the gate does, then here, as `python -m`."""
    found = upwards(pack.resolve())
    return import_path(*([] if found is None else [found.parent]), Path.cwd())


def ls(args: argparse.Namespace) -> int:
    """List the packs under folders; 1 if one of them is damaged."""
    for root in args.folders:
        if not root.is_dir():
            what = "is not a folder" if root.exists() else "does not exist"
            raise PackError(f"{root} {what}", remedy="name folders that hold trace packs")
    table = new_table("pack", "tier", ">traces", ">ops", ">MiB", "recorded on", "torch")
    failed = 0
    for folder in sorted({found for root in args.folders for found in _packs(root)}):
        try:
            pack = open_pack(folder).pack
        except PackError as error:
            print(error, file=sys.stderr)
            failed = 1
            continue
        origins = {(trace.origin.device_name, trace.origin.torch) for trace in pack.traces}
        counts = str(len(pack.traces)), str(len({trace.call.op for trace in pack.traces}))
        devices, versions = (", ".join(sorted({origin[part] for origin in origins})) for part in (0, 1))
        table.add_row(str(folder), pack.tier, *counts, f"{size_of(folder) / 2**20:.2f}", devices, versions)
    print_table(table)
    return failed


def show(args: argparse.Namespace) -> int:
    """List the traces of a pack."""
    table = new_table("op", "signature", ">calls", "replay", "arguments")
    for trace in open_pack(args.pack).pack.traces:
        if args.op is None or args.op in trace.call.op:
            line = arguments_line(trace.call, trace.tensors)
            table.add_row(trace.call.op, trace.signature, str(trace.count), trace.replay, line)
    print_table(table)
    return 0


def verify(args: argparse.Namespace) -> int:
    """Check every file of packs, and replay every trace; 1 if a pack or a trace fails."""
    trust_named(args)
    failures: list[TraceError] = []
    for folder in args.packs:
        try:
            reader = open_pack(folder)
            reader.verify()
            profile.read_all(reader)
        except PackError as error:
            failures.append(error)
            continue
        with imports_of(folder):
            failures += _replay(folder, reader)
    print_failures(failures)
    return 1 if failures else 0


def _replay(folder: Path, reader: PackReader) -> list[TraceError]:
    """Replay every trace of a pack, and print the outcomes by op; what failed is given back."""
    from pytest_cgins.packs.replay import check

    failures: list[TraceError] = []
    outcomes: dict[str, Counter[str]] = {}
    for trace in reader.pack.traces:
        outcome = "failed"
        try:
            outcome = check(trace, reader) if trace.gold is not None else "without values"
        except (PackError, ReplayError) as error:
            failures.append(error)
        outcomes.setdefault(trace.call.op, Counter())[outcome] += 1
    print(f"{folder}: {counted(len(reader.pack.traces), 'trace')}, tier {reader.pack.tier}")
    for op, counts in outcomes.items():
        print(f"  {op}: {', '.join(f'{count} {outcome}' for outcome, count in sorted(counts.items()))}")
    return failures


def _packs(root: Path) -> Iterator[Path]:
    """Folders with a manifest under `root`; hidden ones are left out."""
    for folder, below, files in os.walk(root):
        below[:] = sorted(name for name in below if not name.startswith("."))
        if MANIFEST in files:
            below.clear()
            yield Path(folder)


def _add_maintenance(traces: Subparsers) -> None:
    parser = command(traces, "gc  remove unreferenced files of a pack", gc)
    parser.add_argument("packs", nargs="+", type=Path, metavar="PACK")
    flag(parser, "--dry-run  list what would be removed, and remove nothing")
    parser = command(
        traces,
        "diff  compare two packs trace by trace",
        diff,
        "Compare the traces of two packs, matched by op and signature. Exit status 1 if they differ.",
    )
    parser.add_argument("before", type=Path, metavar="A")
    parser.add_argument("after", type=Path, metavar="B")
    flag(parser, "--json  print a document instead of tables")


def gc(args: argparse.Namespace) -> int:
    """Remove unused blobs, profiles of other traces, and leftovers of killed recordings."""
    from pytest_cgins.recording.maintenance import garbage, remove

    for folder in args.packs:
        found = garbage(folder)
        for item in found:
            print(f"{item.path}: {item.why}, {_mib(item.nbytes)}")
            if not args.dry_run:
                remove(item)
        verb = "would be removed" if args.dry_run else "removed"
        total = _mib(sum(item.nbytes for item in found))
        print(f"{folder}: {counted(len(found), 'file or folder', 'files or folders')}, {total}, {verb}")
    return 0


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:.2f} MiB"


def diff(args: argparse.Namespace) -> int:
    """Print in what two packs differ; 1 if they do."""
    from pytest_cgins.packs.difference import compare

    found = compare(open_pack(args.before), open_pack(args.after))
    if args.json:
        print(documents.dump(found, indent=1))
    else:
        _print_difference(found)
    return 0 if found.is_empty else 1


def _print_difference(found: PackDifference) -> None:
    if not found.is_empty:
        table = new_table("", "op", "signature", ">calls", "what differs", "gold")
        for sign, names in (("-", found.removed), ("+", found.added)):
            for name in names:
                table.add_row(sign, name.op, name.signature, str(name.calls), "", "")
        for trace in found.changed:
            table.add_row("~", trace.op, trace.signature, _calls(trace), ", ".join(trace.parts), _gold(trace))
        print_table(table)
    print(
        f"{counted(found.same, 'trace is', 'traces are')} the same, {len(found.changed)} changed, "
        f"{len(found.added)} added, {len(found.removed)} removed"
    )


def _calls(trace: TraceDifference) -> str:
    before, after = trace.calls
    return str(before) if before == after else f"{before} → {after}"


def _gold(trace: TraceDifference) -> str:
    """The worst output."""
    worst = max(trace.gold, key=lambda one: math.inf if one.max_abs is None else one.max_abs, default=None)
    if worst is None:
        return ""
    ulps = "" if worst.max_ulps is None else f", {counted(worst.max_ulps, 'ulp')}"
    distance = "not finite" if worst.max_abs is None else f"{worst.max_abs:.3g}"
    return f"output {worst.output}: {worst.different} of {counted(worst.compared, 'element')}, by up to {distance}{ulps}"


def _add_audit(traces: Subparsers) -> None:
    parser = command(
        traces,
        "audit  find traces that a wrong kernel would pass",
        audit,
        "Run the checks of each trace on forged answers, with the tolerance that cgins.yaml gives the kernels of "
        "its op, and apply robust-kbench's filters of exploitable tasks, over five draws of fresh inputs. "
        "Exit status 1 if a trace cannot be replayed, or with --strict if one is WEAK.",
    )
    parser.add_argument("packs", nargs="+", type=Path, metavar="PACK")
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    option(parser, "--seed  seed of the first draw (default: %(default)s)", default=0)
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
        with imports_of(folder):
            audits, random, failed = _audit(reader, folder, args)
        failures += failed
        found[str(folder)] = audits
        if not args.json:
            _print_audits(folder, audits, random)
    if args.json:
        print(json.dumps({name: list(map(_document, audits)) for name, audits in found.items()}, indent=1))
    print_failures(failures)
    weak = any(one.weak for audits in found.values() for one in audits)
    return 1 if failures or (args.strict and weak) else 0


def _audit(
    reader: PackReader, folder: Path, args: argparse.Namespace
) -> tuple[list[TraceAudit], list[str], list[TraceError]]:
    """Audits, traces that draw random numbers, and what failed."""
    from pytest_cgins.packs.ops import trust
    from pytest_cgins.verify.audit import audit as audit_trace
    from pytest_cgins.verify.messages import PrepareOptions

    audits: list[TraceAudit] = []
    random: list[str] = []
    failures: list[TraceError] = []
    device = device_of(args.device).case_name
    kernels = _kernels(folder)
    for trace in reader.pack.traces:
        gating = [kernel for kernel in kernels if kernel.op == trace.call.op]
        for kernel in gating or [KernelEntry(name="", op=trace.call.op, implementations=())]:
            reference = kernel.reference and kernel.judged_by
            if reference:  # named in cgins.yaml, as no pack could
                trust(reference)
            options = PrepareOptions(
                declared=kernel.semantics, allow_tf32=kernel.allow_tf32, reference=reference
            )
            try:
                found = audit_trace(
                    trace, reader, device,
                    seed=args.seed, tolerance=kernel.tolerance, options=options, kernel=kernel.name,
                )  # fmt: skip
                audits.append(found)
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
    judged_by = attrgetter("op", "reference", "tolerance", "semantics", "allow_tf32")
    asked: list[KernelEntry] = []
    for kernel in config.kernels:
        if judged_by(kernel) not in map(judged_by, asked):
            asked.append(kernel)
    return asked


def _document(audit: TraceAudit) -> dict[str, object]:
    return {
        **documents.dump_python(audit),
        "weak": audit.weak,
        "exploitable": audit.exploitable,
        "tripped": list(audit.tripped),
    }


def _print_audits(folder: Path, audits: list[TraceAudit], random: list[str]) -> None:
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
        print(f"{op} returns indices, and among equal values any index is accepted if cgins.yaml has: {said}")
    for op in dict.fromkeys(one.op for one in audits):
        # What a single call looks like may be chance.
        likely = [one.coupled for one in audits if one.op == op]
        for said in likely[0]:
            if all(said in others for others in likely):
                print(f"{op}: arguments look coupled; if they are, fresh inputs draw them anew with: {said}")
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


def _add_judge(traces: Subparsers) -> None:
    parser = command(
        traces,
        "judge  ask a model which ops are redundant or inefficient tasks",
        judge,
        "Ask a model which ops contain dead or redundant work, which a kernel could skip without merit. "
        "Advisory only.",
    )
    parser.add_argument("packs", nargs="+", type=Path, metavar="PACK")
    option(parser, "--op TEXT  only ops whose name contains this", default="")
    add_model(parser, "model to ask")
    flag(parser, "--json  print documents instead of a table")
    add_config_option(parser)


def judge(arguments: argparse.Namespace) -> int:
    """Ask, print; exit status 7 if answers are awaited that come by hand."""
    from pytest_cgins.regenerate import provider, run_setup, task_judge

    config = load(arguments.config, require_traces=False)
    settings = run_setup.settings_of(config, run_setup.RunOptions(llm=arguments.llm, model=arguments.model))
    tasks = [task for folder in arguments.packs for task in _tasks(folder, config.root, arguments.op)]
    if not tasks:
        raise PackError(
            f'no op with "{arguments.op}" in its name', remedy="`cgins traces show PACK` lists them"
        )
    again = f"cgins traces judge {' '.join(map(str, arguments.packs))}"
    with closing(provider.of_settings(settings, command=again)) as asked:
        found = task_judge.judged(
            tasks, settings, asked, config.root / JUDGED_FOLDER,
            say=lambda line: print(f"cgins: judged {line}", file=sys.stderr),
        )  # fmt: skip
    opinions = [one for one in found if one is not None]
    if arguments.json:
        print(json.dumps([documents.dump_python(opinion) for opinion in opinions], indent=1))
    else:
        _print_opinions(opinions)
    missing = [task.id for task, one in zip(tasks, found, strict=True) if one is None]
    if missing:
        where = f"{settings.path}/{missing[0]}/prompt.md"
        print(
            f"cgins: {counted(len(missing), 'answer is', 'answers are')} awaited: write the first beside {where}, then run this command again",
            file=sys.stderr,
        )
        return run_setup.EXIT_WAITING
    return 0


def _tasks(folder: Path, root: Path, text: str) -> list[Task]:
    from pytest_cgins.regenerate.task_judge import Task

    pack = read_manifest(folder)
    by_op: dict[str, list[Trace]] = {}
    for trace in pack.traces:
        if text in trace.call.op:
            by_op.setdefault(trace.call.op, []).append(trace)
    return [Task(pack=pack.name, op=op, traces=tuple(traces), root=root) for op, traces in by_op.items()]


def _print_opinions(opinions: list[Opinion]) -> None:
    words = {True: "yes", False: "no", None: "not said"}
    table = new_table("pack", "op", "redundant", "inefficient", "why")
    for one in sorted(opinions, key=lambda one: not (one.redundant or one.inefficient)):
        table.add_row(one.pack, one.op, words[one.redundant], words[one.inefficient], one.why)
    print_table(table)
    flagged = sum(bool(opinion.redundant or opinion.inefficient) for opinion in opinions)
    models = ", ".join(dict.fromkeys(opinion.model for opinion in opinions if opinion.model)) or "nobody"
    print(f"{counted(len(opinions), 'task')}, {flagged} redundant or inefficient, as {models} says")
