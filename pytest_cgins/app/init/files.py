"""The files that `cgins init` writes: `cgins.yaml`, adapters, a recording script, workflows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from importlib import metadata
from itertools import groupby
from pathlib import Path

from pytest_cgins.app.init.known_ops import examples, functions
from pytest_cgins.app.init.plan import Entry, Plan
from pytest_cgins.app.init.scan import SOURCE_ROOTS, CompiledFunction
from pytest_cgins.config import load_without_traces
from pytest_cgins.core.device import DeviceName
from pytest_cgins.core.errors import ConfigError

CONFIG, ADAPTERS, OPS, SCRIPT = "cgins.yaml", "cgins_kernels.py", "cgins_ops.py", "record_cgins.py"
_TEMPLATES = Path(__file__).parent / "templates"


def _filled(template: str, **values: str) -> str:
    return (_TEMPLATES / f"{template}.txt").read_text(encoding="utf-8").format_map(values).rstrip() + "\n"


def workflows(folder: Path, action: str) -> dict[str, str]:
    """Names and texts of the workflows that gate pull requests and comment on them.

    `action` is `OWNER/NAME@COMMIT` of pytest-cgins; "" for what is installed here.

    Raises:
        ConfigError: there is no `cgins.yaml`, or the commit is not known or not whole.
    """
    action = action or _installed_from()
    named = re.fullmatch(r"(?P<owner>[\w.-]+/[\w.-]+)@(?P<commit>[0-9a-f]{40})", action)
    if named is None:
        raise ConfigError(
            f"the action is {action!r}, not OWNER/NAME@COMMIT"
            if action
            else "which pytest-cgins the workflows use is not known",
            remedy="cgins init --github OWNER/pytest-cgins@COMMIT, with all 40 digits of a commit that you have reviewed",
        )
    given = []
    kernels = load_without_traces(folder / CONFIG).kernels
    implementations = [one for kernel in kernels for one in kernel.implementations]
    if any(each.device == "cuda" for each in implementations):
        given += ['runner: \'["self-hosted", "gpu"]\'', 'python-version: ""']
    else:  # GitHub's own runners are thrown away after a run, so they may gate pull requests from forks
        given.append("trusted-heads-only: false")
    if (folder / "requirements.txt").is_file():
        given.append("requirements: requirements.txt")
    if path := import_roots(
        each.sources[0].relative_to(folder.absolute()) for each in implementations if each.sources
    ):
        given.append(f"pytest-args: {json.dumps(path)}")
    inputs = f"    with: {{{', '.join(given)}}}" if given else ""
    return {
        f".github/workflows/{name}": _filled(name, **named.groupdict(), inputs=inputs)
        for name in ("cgins.yml", "cgins-comment.yml")
    }


def _installed_from() -> str:
    """The commit that pip installed this from, if it was one of GitHub's; "" otherwise."""
    text = metadata.distribution("pytest-cgins").read_text("direct_url.json")
    origin = json.loads(text or "{}")
    named = re.search(r"github\.com[/:]([\w.-]+/[\w.-]+?)(?:\.git)?/?$", str(origin.get("url")))
    commit = origin.get("vcs_info", {}).get("commit_id")
    return f"{named[1]}@{commit}" if named and commit else ""


def import_roots(files: Iterable[Path]) -> str:
    """The option of pytest with which modules are found that are not imported from the repository's own folder."""
    roots = sorted({file.parts[0] for file in files} & set(SOURCE_ROOTS))
    return f"-o pythonpath={' '.join(roots)}" if roots else ""


def project_files(plan: Plan, device: DeviceName) -> dict[str, str]:
    """Names and texts of the files of a plan with entries, relative to the repository; on the CPU Triton is interpreted."""
    calls = dict.fromkeys(entry.match.call for entry in plan.entries)
    ops = dict.fromkeys(entry.match.op for entry in plan.entries)
    own = functions(ops)
    script = _filled(
        SCRIPT,
        imports="\nimport cgins_ops" if own else "",
        ops="\n".join(f'    "{op}",' for op in ops),
        lines="\n".join(f"    {line}" for line in [*examples(" ".join(calls)), *calls]),
    )
    files = {CONFIG: "\n".join(_config(plan, device)), SCRIPT: script}
    if own:
        files[OPS] = _filled(OPS, functions="\n\n\n".join(f"@pytest_cgins.mark\n{code}" for code in own))
    if adapters := [entry for entry in plan.entries if entry.needs_adapter]:
        head = '"""Functions with the parameters of torch\'s ops that call kernels of this repository. Written by `cgins init`."""'
        files[ADAPTERS] = "\n\n\n".join([head, *("\n".join(_adapter(entry)) for entry in adapters)]) + "\n"
    return files


def _config(plan: Plan, device: DeviceName) -> Iterator[str]:
    yield "# Written by `cgins init`; `python record_cgins.py` records the traces, `pytest --cgins` gates the kernels."
    yield "version: 1\ntraces: [traces/init]\nkernels:"
    for name, group in groupby(plan.entries, lambda entry: entry.match.name):
        entries = list(group)
        yield f"  {name}:\n    op: {entries[0].match.op}"
        if fixed := sorted({parameter for entry in entries for parameter in entry.match.fixed}):
            yield f"    semantics: {{fixed: [{', '.join(fixed)}]}}"
        yield "    implementations:"
        yield from (f"      - {{{', '.join(_implementation(plan, entry, device))}}}" for entry in entries)
    if plan.operators:
        yield "  # Operators of this repository: record a run that calls them, and take the # away."
    for function in plan.operators:
        name, op = function.operator.replace("::", "."), function.operator.replace("::", "_")
        yield f"  # {op}: {{op: torch.ops.{name}, load: [{function.module}], device: cuda, reference: MODULE:FUNCTION}}"
    yield ""


def _implementation(plan: Plan, entry: Entry, device: DeviceName) -> Iterator[str]:
    function = entry.function
    yield f"name: {entry.implementation}"
    if isinstance(function, CompiledFunction):
        if function.contract == "device":
            yield "contract: device"
        if function.contract == "torch-extension":
            yield f"contract: torch-extension, entry: {json.dumps(function.name)}"
        source, *others = map(str, function.files)
        yield f"device: {'cuda' if entry.language == 'cuda' else 'cpu'}"
        yield f"sources: {json.dumps([source, *others])}" if others else f'source: "{source}"'
        return
    on_cpu = device == "cpu" and entry.language == "triton"
    yield "device: cpu, interpret: true" if on_cpu else "device: cuda"
    target = f"{ADAPTERS[:-3]}:{_adapter_name(entry)}" if entry.needs_adapter else function.target
    kernels = (plan.kernels[name].file for name in sorted(entry.covers))
    yield f'target: "{target}", sources: {json.dumps(list(dict.fromkeys(map(str, [function.file, *kernels]))))}'


def _adapter_name(entry: Entry) -> str:
    return f"{entry.match.name}_{entry.implementation}"


def _adapter(entry: Entry) -> Iterator[str]:
    module, _, function = str(getattr(entry.function, "target", "")).partition(":")
    match = entry.match
    yield f"def {_adapter_name(entry)}({', '.join(match.declares)}):"
    yield f"    from {module} import {entry.function.name}\n"
    for condition in match.guards:
        yield f'    if {condition}:\n        raise NotImplementedError("only the last dimension")'
    yield f"    return {function}({', '.join(match.arguments)})"
