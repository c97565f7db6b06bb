"""`cgins traces explain`: what the tolerance allows in a case, and why."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from pytest_cgins.app.commands.options import Subparsers, add_seed, command, flag, seed_of
from pytest_cgins.app.commands.schema import add_config_option
from pytest_cgins.config import Config, load
from pytest_cgins.core import documents
from pytest_cgins.core.case import Case
from pytest_cgins.core.console import import_path, new_table, print_table
from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.text import nearest
from pytest_cgins.gate.cases import cases_of
from pytest_cgins.gate.reference_requests import ReferenceRequests
from pytest_cgins.packs.store import open_pack

if TYPE_CHECKING:
    from pytest_cgins.verify.explain import Allowance


def add_parser(traces: Subparsers) -> None:
    """Add the command to `cgins traces`."""
    parser = command(
        traces,
        "explain  tell how far a case's answers may be off, and why",
        explain,
        "Distances are medians over an output's elements, in ulp: steps between neighbours of its dtype. Beside them "
        "stands what torch.testing.assert_close allows by default, and what torch itself is off. A case whose device is "
        "not there is explained on the CPU.",
    )
    parser.add_argument("case", metavar="CASE", help="a case's name as in reports; * stands for any text")
    add_config_option(parser)
    add_seed(parser)
    flag(parser, "--json  print documents instead of tables")


def explain(args: argparse.Namespace) -> int:
    """Print a table a case."""
    config, seed = load(args.config), seed_of(args)
    told: dict[str, list[Allowance]] = {}
    with import_path(config.root):
        for case in _cases(config, args.case):
            told[case.name] = _allowances(config, case, seed)
            if not args.json:
                _print(case, told[case.name])
    if args.json:
        print(json.dumps({name: documents.dump_python(rows) for name, rows in told.items()}, indent=1))
    else:
        print(f"seed {seed} (--cgins-seed={seed} repeats the fresh inputs)")
    return 0


def _cases(config: Config, name: str) -> list[Case]:
    """Those that a name or pattern means.

    Raises:
        ConfigError: there is none.
    """
    cases = cases_of(config)
    matching = [case for case in cases if fnmatchcase(case.name, name)]
    if not matching:
        guess = nearest(name, [case.name for case in cases])
        raise ConfigError(
            f"{config.file} has no case {name!r}",
            remedy=guess or "pytest --cgins --collect-only -q lists them",
        )
    return matching


def _allowances(config: Config, case: Case, seed: int) -> list[Allowance]:
    from pytest_cgins.packs.ops import trust
    from pytest_cgins.verify.explain import explain as explained
    from pytest_cgins.verify.prepare import prepare

    requests = ReferenceRequests(
        config=config, seed=seed, level="off", sanitize=(), import_root=config.root, timing=False
    )
    request = requests.for_case(case)
    trust(request.reference or case.op)
    device = case.device if device_of(case.device).count() else "cpu"
    reader = open_pack(case.pack_path)
    trace = next(trace for trace in reader.pack.traces if trace.id == case.trace_id)
    preparation = prepare(trace, reader, device, seed, replace(request.options, probes=()))
    return list(explained(preparation, device, request.tolerance))


def _print(case: Case, allowances: list[Allowance]) -> None:
    table = new_table("inputs", "rule", "allowed", "all together", "allclose", "torch is off", "why")
    for row in allowances:
        name = row.inputs if row.output == 0 else f"{row.inputs}, output {row.output}"
        numbers = (row.allowed_ulp, row.rms_ulp, row.allclose_ulp, row.torch_ulp)
        cells = ["-" if row.exact or number is None else f"{number:.3g}" for number in numbers]
        table.add_row(name, row.rule, *cells, row.why)
    print(f"{case.name}: ulp of {allowances[0].dtype}, medians over elements")
    print_table(table)
