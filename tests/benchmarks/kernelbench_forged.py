"""KernelBench's level 1 against forged kernels: which problems can tell them from the reference, and which cannot.

python tests/benchmarks/kernelbench_forged.py --kernelbench CHECKOUT [--device cuda] [--max-mib 64] [--json out.json]

Each problem is imported and recorded as `kernelbench_level1.py` does, and gated with six kernels: the reference
itself, which must pass; zeros; ones; a copy of an input; the reference on |inputs|, which no input from [0, 1) can tell
from it; and the reference computed in half precision. The last three call the reference and are excused from the probe
`op_callback`, so that only numbers can convict them. A forged kernel that passes is listed as a miss, unless torch's
own answers say that the problem cannot tell it: then the case is WEAK, and is listed with what it accepts.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from kernelbench_level1 import CGINS, ROOT, problems

FORGERIES = ("zeros", "ones", "input_copy", "positive_only", "half_inside")
PLUGIN = (
    [] if any(e.name == "cgins" for e in entry_points(group="pytest11")) else ["-p", "pytest_cgins.plugin"]
)
CANDIDATES = """\
import torch
from {module} import Model

OUTPUTS = {outputs}


def _all(make, args):
    device = next((a.device for a in args if isinstance(a, torch.Tensor)), "cpu")
    made = [make(shape, dtype=getattr(torch, dtype), device=device) for shape, dtype in OUTPUTS]
    return made[0] if len(made) == 1 else tuple(made)


def zeros({names}):
    return _all(torch.zeros, [{names}])


def ones({names}):
    return _all(torch.ones, [{names}])


def input_copy({names}):
    alike = [a for a in [{names}] if isinstance(a, torch.Tensor) and [tuple(a.shape), str(a.dtype)[6:]] == [*OUTPUTS[0]]]
    return alike[0].clone()


def _floating(change, value):
    return change(value) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def positive_only({names}):
    self, *args = [{names}]
    return Model.forward(self, *[_floating(torch.Tensor.abs, a) for a in args])


def half_inside({names}):
    self, *args = [{names}]
    for parameter in (*self.parameters(), *self.buffers()):
        if parameter.is_floating_point():
            parameter.data = parameter.data.half()
    answer = Model.forward(self, *[_floating(torch.Tensor.half, a) for a in args])
    return answer.float() if answer.is_floating_point() else answer


def reference({names}):
    return Model.forward({names})
"""


@dataclass
class Result:
    """What became of one problem."""

    problem: str
    outcomes: dict[str, str] = field(default_factory=dict)
    """`STATUS (reason)` by kernel; `-` where a forgery cannot be made."""
    accepted: list[str] = field(default_factory=list)
    """Forgeries that torch's own answers accept: the case is WEAK."""
    why: str = ""
    """What was measured about a problem that accepts zeros, or why it was not gated."""
    seconds: float = 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kernelbench", type=Path, required=True, help="checkout, or its folder level1")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--max-mib", type=float, default=1.0)
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 2))
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for either step of a problem")
    parser.add_argument("--deadline", type=float, help="seconds after which no further problem is begun")
    parser.add_argument("--only", default="", help="regular expression on the problem's file name")
    parser.add_argument("--work", type=Path, help="folder to work in; kept, and resumed from")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    chosen = [path for path in problems(arguments.kernelbench) if re.search(arguments.only, path.name)]
    if not chosen:
        parser.error(f"{arguments.kernelbench} has no problem of level 1")
    work = (arguments.work or Path(tempfile.mkdtemp(prefix="kernelbench-"))).absolute()
    begun = time.monotonic()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        results = list(pool.map(lambda path: _run(path, work, arguments, begun), chosen))
    document = _document(arguments, results, work, time.monotonic() - begun)
    _print(document, results)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if document["misses"] else 0


def _run(path: Path, work: Path, arguments: argparse.Namespace, begun: float) -> Result:
    folder = work / path.stem
    known = folder / "forged.json"
    if known.is_file():
        return Result(**json.loads(known.read_text()))
    if arguments.deadline is not None and time.monotonic() - begun > arguments.deadline:
        return Result(path.stem, why="not begun: --deadline had passed")
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    result = Result(path.stem)
    try:
        _import(path, folder, arguments)
        _gate(result, folder, arguments)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        result.why = " ".join(str(error).split())[:300]
    result.seconds = time.monotonic() - started
    known.write_text(json.dumps(asdict(result)))
    print(f"{path.stem}: {result.outcomes} {result.why}", file=sys.stderr, flush=True)
    return result


def _import(path: Path, folder: Path, arguments: argparse.Namespace) -> None:
    (folder / "cgins.yaml").unlink(missing_ok=True)
    command = [
        *CGINS, "import", "kernelbench", str(path.absolute()), "--allow-code", "--out", "pack", "--shrink",
        "--max-mib", str(arguments.max_mib), "--device", arguments.device, "--config", "cgins.yaml",
    ]  # fmt: skip
    output = _spawn(command, folder, arguments)
    if not (folder / "cgins.yaml").is_file():
        raise RuntimeError(output.strip().splitlines()[-1] if output.strip() else "the import wrote nothing")


def _gate(result: Result, folder: Path, arguments: argparse.Namespace) -> None:
    (trace,) = json.loads((folder / "pack" / "manifest.json").read_text())["traces"]
    outputs = [(tuple(t["meta"]["shape"]), t["meta"]["dtype"]) for t in trace["gold"]["tensors"]]
    inputs = [(tuple(meta["shape"]), meta["dtype"]) for meta in trace["tensors"]]
    op = trace["call"]["op"]
    # What is named after `self.` is the module's state, and comes with it.
    names = [one["name"] for one in trace["call"]["arguments"] if not one["name"].startswith("self.")]
    (folder / "candidates.py").write_text(
        CANDIDATES.format(
            module=op.rpartition(".")[0],
            outputs=repr(outputs),
            names=", ".join(["self", *names]),
        )
    )
    made = ["reference", *(name for name in FORGERIES if name != "input_copy" or outputs[0] in inputs)]
    excuse = "{op_callback: {off: the reference is what is forged here}}"
    kernels = "".join(
        f"  {name}: {{op: {op}, device: {arguments.device}, target: 'candidates:{name}', probes: {excuse}}}\n"
        for name in made
    )
    (folder / "cgins.yaml").write_text(f"version: 1\ntraces: [pack]\nkernels:\n{kernels}")
    command = [
        sys.executable, "-m", "pytest", "--cgins", "--cgins-json", "report.json", "-q", "--rootdir", ".",
        "-p", "no:cacheprovider", f"--cgins-device={arguments.device}", "--cgins-no-timing",
        f"--cgins-timeout={arguments.limit}", "--cgins-seed=1", *PLUGIN,
    ]  # fmt: skip
    output = _spawn(command, folder, arguments)
    report = folder / "report.json"
    if not report.is_file():
        raise RuntimeError(output.strip().splitlines()[-1])
    evaluations = {one["case"]["kernel"]: one for one in json.loads(report.read_text())["evaluations"]}
    result.outcomes = {
        name: f"{one['verdict']['status']} ({one['verdict']['reason']})" for name, one in evaluations.items()
    }
    checked = evaluations["reference"]["correctness"] or {"power": []}
    result.accepted = [power["forgery"] for power in checked["power"] if not power["caught"]]
    if "zeros" in result.accepted:
        result.why = _zeros(trace)


def _zeros(trace: dict[str, Any]) -> str:
    """What of the recorded outputs explains that zeros are accepted."""
    parts = [f"output {list(t['meta']['shape'])} {t['meta']['dtype']}" for t in trace["gold"]["tensors"]]
    statistics = [t.get("statistics") for t in trace["gold"]["tensors"]]
    return f"{'; '.join(parts)}; gold {statistics}"[:300]


def _spawn(command: list[str], folder: Path, arguments: argparse.Namespace) -> str:
    threads = str(max(1, (os.cpu_count() or 1) // arguments.jobs))
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "PYTHONPATH": path}
    ran = subprocess.run(
        command,
        check=False,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=6 * arguments.limit,
    )
    return ran.stdout + ran.stderr


def _document(
    arguments: argparse.Namespace, results: list[Result], work: Path, seconds: float
) -> dict[str, Any]:
    misses = [
        f"{result.problem}: {name}"
        for result in results
        for name, outcome in result.outcomes.items()
        if name != "reference" and outcome.startswith(("PASSED", "FASTER", "SAME", "NEW"))
    ]
    environments: list[Any] = []
    for report in sorted(work.glob("*/report.json"))[:1]:
        environments = json.loads(report.read_text())["environments"]
    return {
        "device": arguments.device,
        "max_mib": arguments.max_mib,
        "environments": environments,
        "seconds": seconds,
        "misses": misses,
        "reference_failed": [
            r.problem
            for r in results
            if r.outcomes and r.outcomes.get("reference", "").split()[0] not in ("PASSED", "WEAK")
        ],
        "no_power": {r.problem: {"accepts": r.accepted, "why": r.why} for r in results if r.accepted},
        "results": [asdict(result) for result in results],
    }


def _print(document: dict[str, Any], results: list[Result]) -> None:
    print("| kernel | problems | failed | WEAK | passed |")
    print("|---|---|---|---|---|")
    for name in ("reference", *FORGERIES):
        found = Counter(r.outcomes[name].split()[0] for r in results if name in r.outcomes)
        weak, passed = found.pop("WEAK", 0), found.pop("PASSED", 0)
        print(
            f"| {name} | {sum(found.values()) + weak + passed} | {sum(found.values())} | {weak} | {passed} |"
        )
    for key in ("misses", "reference_failed"):
        print(f"\n{key}: {', '.join(document[key]) or 'none'}")
    for problem, told in document["no_power"].items():
        print(f"no power: {problem} accepts {', '.join(told['accepts'])}; {told['why']}")
    for result in results:
        if not result.outcomes:
            print(f"not gated: {result.problem}: {result.why}")


if __name__ == "__main__":
    sys.exit(main())
