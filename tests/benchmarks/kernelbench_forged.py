"""KernelBench's level 1 against forged kernels: which problems tell them from the reference, and which cannot.

python tests/benchmarks/kernelbench_forged.py --kernelbench CHECKOUT [--device cuda] [--max-mib 64] [--json FILE]

Each problem is imported as `kernelbench_reference.py` does, and gated with six kernels: the reference itself, which must
pass; zeros; ones; a copy of an input; the reference on |inputs|, which no input from [0, 1) can tell from it; and the
reference computed in half precision. The kernels are excused from the probe `op_callback`, so that numbers must convict
those that call the reference. A forged kernel that passes has `no power` against it if torch's own answers
(`kernelbench_power.py`) pass for right as well, on all inputs of the case; otherwise it is `missed`. With `--deadline`
no process runs on after so many seconds. Exit code 1 if a forgery was missed or the reference called wrong.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import kernelbench

FORGERIES = ("zeros", "ones", "input_copy", "positive_only", "half_inside")
CONVICTED = ("INCORRECT", "SUSPECT")
PASSING = ("PASSED", "WEAK")
SEED = 1
RESULT = "forged.json"
CANDIDATES = """\
import torch
from torch.func import functional_call

from {module} import Model

OUTPUTS = {outputs}


def _all(make, args):
    device = next((a.device for a in args if isinstance(a, torch.Tensor)), "{device}")
    made = [make(shape, dtype=getattr(torch, dtype), device=device) for shape, dtype in OUTPUTS]
    return made[0] if len(made) == 1 else tuple(made)


def zeros({names}):
    return _all(torch.zeros, [{names}])


def ones({names}):
    return _all(torch.ones, [{names}])


def input_copy({names}):
    for a in [{names}]:
        if isinstance(a, torch.Tensor) and (tuple(a.shape), str(a.dtype)[6:]) == OUTPUTS[0]:
            return a.clone()


def _floating(change, value):
    return change(value) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def positive_only({names}):
    self, *args = [{names}]
    return Model.forward(self, *[_floating(torch.Tensor.abs, a) for a in args])


def half_inside({names}):
    self, *args = [{names}]
    for dtype, inside in ((torch.float16,) * 2, (torch.bfloat16,) * 2, (torch.float16, torch.float32)):
        try:
            return _narrow(self, args, dtype, inside)
        except RuntimeError as error:  # some ops have no fp16 on the CPU, and a few no bf16 either
            if "not implemented" not in str(error):
                raise


def _narrow(self, args, dtype, inside):
    # Inputs, parameters and answer are rounded to `dtype`, and the op is computed in `inside`.
    held = {{n: t for n, t in (*self.named_parameters(), *self.named_buffers()) if t.is_floating_point()}}
    narrow = {{name: tensor.detach().to(dtype).to(inside) for name, tensor in held.items()}}
    used = {{name: tensor.clone() for name, tensor in narrow.items()}}
    answer = functional_call(self, used, tuple(_floating(lambda a: a.to(dtype).to(inside), a) for a in args))
    for name, tensor in held.items():
        if not torch.equal(used[name], narrow[name]):  # running statistics
            tensor.data.copy_(used[name].to(dtype))
    answers = answer if isinstance(answer, tuple) else (answer,)
    widened = [_floating(lambda a: a.to(dtype).float(), a) for a in answers]
    return tuple(widened) if isinstance(answer, tuple) else widened[0]


def reference({names}):
    return Model.forward({names})
"""


@dataclass
class Result:
    """What became of one problem."""

    problem: str
    """Name of its file."""
    outcomes: dict[str, str] = field(default_factory=dict)
    """`STATUS (reason)` by kernel; a forgery that cannot be made is not among them."""
    messages: dict[str, str] = field(default_factory=dict)
    """What the verdict says, of the reference if it failed and of kernels that were neither passed nor convicted."""
    accepts: list[str] = field(default_factory=list)
    """Forged answers that the power check of the case accepts."""
    told: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By forged kernel that passed, and by forged answer that the power check accepts: see `kernelbench_power.Told`."""
    why_not_gated: str = ""
    """Why there are no outcomes."""
    seconds: float = 0.0
    """For all of it."""

    def became(self, forgery: str) -> str:
        """`caught`, `no power`, `missed`, `not judged`; "" if it was not made."""
        status = self.outcomes.get(forgery, "").partition(" ")[0]
        if not status:
            return ""
        if status in CONVICTED:
            return "caught"
        if status not in PASSING or forgery not in self.told:
            return "not judged"
        return "no power" if self.told[forgery]["accepted"] else "missed"


def main() -> int:
    parser = kernelbench.options(__doc__.partition("\n")[0], max_mib=1.0, limit=120.0)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    chosen = kernelbench.problems(arguments.kernelbench, arguments.only)
    if not chosen:
        parser.error(f"{arguments.kernelbench} has no problem of level 1")
    run = kernelbench.Run.start(arguments)
    document = summary(run, run.over(chosen, lambda path: _run(path, run)))
    text = table(document)
    print(text, end="")
    files = {arguments.json: json.dumps(document, indent=1) + "\n", arguments.markdown: text}
    for path, content in files.items():
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    return 1 if document["reference"]["wrong"] or document["missed"] else 0


def _run(path: Path, run: kernelbench.Run) -> Result:
    folder = run.work / path.stem
    known = folder / RESULT
    if known.is_file():
        return Result(**json.loads(known.read_text()))
    if run.left <= 0:
        return Result(path.stem, why_not_gated=kernelbench.TOO_LATE)
    folder.mkdir(parents=True, exist_ok=True)
    result, begun = Result(path.stem), run.seconds
    done = kernelbench.record(path, folder, run)
    if done.code == 0:
        _gate(result, folder, run)
    else:
        result.why_not_gated = done.left_out
    result.seconds = run.seconds - begun
    if run.left > 0:  # what the deadline cut off says nothing
        known.write_text(json.dumps(asdict(result)))
    print(f"{path.stem}: {result.outcomes} {result.why_not_gated}", file=sys.stderr, flush=True)
    return result


def _gate(result: Result, folder: Path, run: kernelbench.Run) -> None:
    _write_project(folder, run.arguments.device)
    options = ("--cgins-no-timing", f"--cgins-seed={SEED}")
    done = kernelbench.gate(folder, run, *options, limits=1 + len(FORGERIES))
    report = folder / kernelbench.REPORT
    if not report.is_file():
        result.why_not_gated = done.last_line
        return
    evaluations = {one["case"]["kernel"]: one for one in json.loads(report.read_text())["evaluations"]}
    for name, one in evaluations.items():
        verdict = one["verdict"]
        result.outcomes[name] = f"{verdict['status']} ({verdict['reason']})"
        expected = PASSING if name == "reference" else PASSING + CONVICTED
        if verdict["status"] not in expected:
            result.messages[name] = " ".join(verdict["message"].split())[:300]
    checked = evaluations.get("reference", {}).get("correctness") or {"power": []}
    result.accepts = [one["forgery"].replace("-", "_") for one in checked["power"] if not one["caught"]]
    passed = [name for name in FORGERIES if result.outcomes.get(name, "").startswith(PASSING)]
    asked = list(dict.fromkeys([*passed, *result.accepts]))
    if asked:
        result.told = _told(asked, result, folder, run)


def _write_project(folder: Path, device: str) -> None:
    """The forged kernels of a problem, and a `cgins.yaml` that gates them and the reference."""
    trace = kernelbench.recorded(folder)
    # Running statistics are among the gold, and are not returned.
    changed = {number for _, number in trace["gold"]["mutated"]}
    metas = [one["meta"] for number, one in enumerate(trace["gold"]["tensors"]) if number not in changed]
    outputs = [(tuple(meta["shape"]), meta["dtype"]) for meta in metas]
    call = trace["call"]
    arguments = [one for one in call["arguments"] if one["passed"] != "state"]
    passed = [
        trace["tensors"][int(one["value"]["value"])] for one in arguments if one["value"]["kind"] == "tensor"
    ]
    names = ", ".join(["self", *(one["name"] for one in arguments)])
    text = CANDIDATES.format(
        module=call["op"].rpartition(".")[0], outputs=repr(outputs), names=names, device=device
    )
    (folder / "candidates.py").write_text(text)
    alike = any((tuple(meta["shape"]), meta["dtype"]) == outputs[0] for meta in passed)
    kernels = "".join(
        f"  {name}: {{op: {call['op']}, device: {device}, target: 'candidates:{name}', "
        f"probes: {{op_callback: {{off: numbers alone are to convict}}}}}}\n"
        for name in ("reference", *FORGERIES)
        if name != "input_copy" or alike
    )
    (folder / "cgins.yaml").write_text(f"version: 1\ntraces: [pack]\nkernels:\n{kernels}")


def _told(asked: list[str], result: Result, folder: Path, run: kernelbench.Run) -> dict[str, dict[str, Any]]:
    script, power = Path(__file__).with_name("kernelbench_power.py"), folder / "power.json"
    power.unlink(missing_ok=True)
    command = [
        sys.executable, str(script), *asked,
        "--device", run.arguments.device, "--seed", str(SEED), "--json", power.name,
    ]  # fmt: skip
    done = kernelbench.spawn(command, folder, run, run.arguments.limit)
    if not power.is_file():
        result.messages["power"] = done.last_line
        return {}
    told: dict[str, dict[str, Any]] = json.loads(power.read_text())
    return told


def summary(run: kernelbench.Run, results: list[Result]) -> dict[str, Any]:
    """Everything that was found; `table` prints it, and counts nothing itself."""
    arguments = run.arguments
    return {
        "environment": run.environments(),
        "device": arguments.device,
        "max_mib": arguments.max_mib,
        "seed": SEED,
        "jobs": arguments.jobs,
        "problem_seconds": sum(one.seconds for one in results),
        "problems": len(results),
        "reference": _reference(results),
        "forgeries": {name: _forgery(name, results) for name in FORGERIES},
        "no_power": list(_no_power(results)),
        "missed": [
            {"problem": one.problem, "forgery": name, "why": one.told[name]["why"]}
            for one in results
            for name in FORGERIES
            if one.became(name) == "missed"
        ],
        "not_judged": [
            {
                "problem": one.problem,
                "forgery": name,
                "outcome": one.outcomes[name],
                "why": _message(one, name),
            }
            for one in results
            for name in FORGERIES
            if one.became(name) == "not judged"
        ],
        "not_gated": {one.problem: one.why_not_gated for one in results if not one.outcomes},
        "results": [asdict(one) for one in results],
    }


def _reference(results: list[Result]) -> dict[str, Any]:
    statuses = {one.problem: one.outcomes["reference"] for one in results if "reference" in one.outcomes}
    return {
        "gated": len(statuses),
        "passed": sum(status.startswith(PASSING) for status in statuses.values()),
        "weak": sum(status.startswith("WEAK") for status in statuses.values()),
        "wrong": {
            one.problem: f"{statuses[one.problem]} {one.messages.get('reference', '')}"
            for one in results
            if one.problem in statuses and not statuses[one.problem].startswith(PASSING)
        },
    }


def _forgery(name: str, results: list[Result]) -> dict[str, Any]:
    became = Counter(one.became(name) for one in results if name in one.outcomes)
    signed = sum(one.became(name) == "no power" and one.told[name]["signed"] for one in results)
    reasons = Counter(
        one.outcomes[name].partition(" ")[2].strip("()") for one in results if one.became(name) == "caught"
    )
    return {
        "made": sum(became.values()),
        "caught": became["caught"],
        "no_power": became["no power"],
        "no_power_but_signed_inputs_would_tell": signed,
        "missed": became["missed"],
        "not_judged": became["not judged"],
        "caught_by": dict(reasons.most_common()),
    }


def _no_power(results: list[Result]) -> Iterator[dict[str, Any]]:
    """What passes for right: forged kernels, and forged answers that the power check of the case accepts."""
    for one in results:
        for name, told in one.told.items():
            if one.became(name) == "no power" or (name in one.accepts and one.became(name) != "missed"):
                yield {"problem": one.problem, "accepts": name, "kernel": one.became(name), **told}


def _message(result: Result, name: str) -> str:
    return result.messages.get(name) or result.messages.get("power", "")


def table(document: dict[str, Any]) -> str:
    """The document as markdown."""
    reference = document["reference"]
    head = (
        f"{reference['gated']} of {document['problems']} problems gated on {document['device']}, at most "
        f"{document['max_mib']:g} MiB each; {document['problem_seconds']:.0f} s in all, {document['jobs']} problems at a time. The reference as "
        f"its own candidate: {reference['passed']} passed ({reference['weak']} of them WEAK), "
        f"{len(reference['wrong'])} called wrong."
    )
    lines = [
        head,
        "",
        "| forgery | made | caught | no power | of these told by signed inputs | missed | not judged | caught by |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, one in document["forgeries"].items():
        by = ", ".join(f"{reason} {count}" for reason, count in one["caught_by"].items())
        lines.append(
            f"| {name} | {one['made']} | {one['caught']} | {one['no_power']} "
            f"| {one['no_power_but_signed_inputs_would_tell']} | {one['missed']} | {one['not_judged']} | {by} |"
        )
    for title, rows in _lists(document):
        if rows:
            lines += ["", f"{title}:", "", *(f"- {row}" for row in rows)]
    if document["no_power"]:
        lines += [
            "",
            "What the inputs of a case cannot tell:",
            "",
            "| problem | accepts | the forged kernel | why |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| {one['problem']} | {one['accepts']} | {one['kernel'] or 'not made'} | {_cell(one['why'])} |"
            for one in document["no_power"]
        ]
    return "\n".join(lines) + "\n"


def _lists(document: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    yield (
        "The reference called wrong",
        [f"{problem}: {why}" for problem, why in document["reference"]["wrong"].items()],
    )
    yield "Missed", [f"{one['problem']}, {one['forgery']}: {one['why']}" for one in document["missed"]]
    yield (
        "Not judged",
        [
            f"{one['problem']}, {one['forgery']}: {one['outcome']} {one['why']}"
            for one in document["not_judged"]
        ],
    )
    yield "Not gated", [f"{problem}: {why}" for problem, why in document["not_gated"].items()]


def _cell(text: str) -> str:
    """A text within a cell of a table."""
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
