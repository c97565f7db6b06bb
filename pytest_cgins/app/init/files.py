"""The files that `cgins init` writes: `cgins.yaml`, adapters, a recording script, workflows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from importlib import metadata
from itertools import groupby
from pathlib import Path

from pytest_cgins.app.init.known_ops import examples
from pytest_cgins.app.init.plan import Entry, Plan
from pytest_cgins.app.init.scan import SOURCE_ROOTS, Definition
from pytest_cgins.config import load_without_traces
from pytest_cgins.core.device import DeviceName
from pytest_cgins.core.errors import ConfigError

CONFIG, ADAPTERS, SCRIPT = "cgins.yaml", "cgins_kernels.py", "record_cgins.py"
_SCRIPT = '''"""Records calls of the ops that the kernels of cgins.yaml replace: python {script}. Written by `cgins init`; edit it."""

import torch

import pytest_cgins

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
OPS = [
{ops}
]


def calls(dtype, rows, columns):
    """A call of each op; put the shapes of your model in."""

    def draw(*shape):
        return torch.randn(*shape, device=DEVICE).to(dtype)

{lines}

def model():
    """Run your model here: its calls of these ops are recorded, too."""


if __name__ == "__main__":
    torch.manual_seed(0)
    with torch.no_grad(), pytest_cgins.record("traces/init", ops=OPS):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            for rows, columns in ((64, 1024), (8, 96)):
                calls(dtype, rows, columns)
        model()
'''
_GATE = """name: Kernels
on: [pull_request]
permissions: {{contents: read}}
jobs:
  gate:
    uses: {owner}/.github/workflows/gate.yml@{commit}
"""
_COMMENT = """on: {{workflow_run: {{workflows: [Kernels], types: [completed]}}}}
permissions: {{actions: read, contents: read, pull-requests: write}}
jobs: {{comment: {{uses: {owner}/.github/workflows/comment.yml@{commit}}}}}
"""


def workflows(folder: Path, action: str) -> dict[str, str]:
    """Names and texts of the workflows that gate pull requests and comment on them.

    Args:
        folder: of the repository, with its `cgins.yaml`.
        action: `OWNER/NAME@COMMIT` of pytest-cgins; "" for what is installed here.

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
    implementations = [
        one for kernel in load_without_traces(folder / CONFIG).kernels for one in kernel.implementations
    ]
    if any(one.device == "cuda" for one in implementations):
        given += ['runner: \'["self-hosted", "gpu"]\'', 'python-version: ""']
    if (folder / "requirements.txt").is_file():
        given.append("requirements: requirements.txt")
    if path := import_roots(
        one.sources[0].relative_to(folder.absolute()) for one in implementations if one.sources
    ):
        given.append(f"pytest-args: {json.dumps(path)}")
    with_line = f"    with: {{{', '.join(given)}}}\n" if given else ""
    return {
        ".github/workflows/cgins.yml": _GATE.format_map(named.groupdict()) + with_line,
        ".github/workflows/cgins-comment.yml": _COMMENT.format_map(named.groupdict()),
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
    """Names and texts of the files, relative to the repository.

    Args:
        plan: at least one entry.
        device: where kernels of Triton run; on the CPU, in its interpreter.
    """
    adapters = [entry for entry in plan.entries if needs_adapter(entry)]
    files = {CONFIG: "\n".join(_config(plan, device)), SCRIPT: _script(plan)}
    if adapters:
        head = '"""Functions with the parameters of torch\'s ops that call kernels of this repository. Written by `cgins init`."""'
        files[ADAPTERS] = "\n\n\n".join([head, *("\n".join(_adapter(entry)) for entry in adapters)]) + "\n"
    return files


def needs_adapter(entry: Entry) -> bool:
    """Whether a function is not called with the op's own arguments."""
    return isinstance(entry.function, Definition) and (
        entry.function.role == "autograd" or not entry.match.direct
    )


def _config(plan: Plan, device: DeviceName) -> Iterator[str]:
    yield "# Written by `cgins init`; `python record_cgins.py` records the traces, `pytest --cgins` gates the kernels."
    yield "version: 1\ntraces: [traces/init]\nkernels:"
    for name, entries in groupby(plan.entries, lambda entry: entry.kernel):
        listed = list(entries)
        yield f"  {name}:\n    op: {listed[0].match.op}"
        if fixed := sorted({parameter for entry in listed for parameter in entry.match.fixed}):
            yield f"    semantics: {{fixed: [{', '.join(fixed)}]}}"
        yield "    implementations:"
        yield from (f"      - {{{', '.join(_implementation(plan, entry, device))}}}" for entry in listed)
    yield ""


def _implementation(plan: Plan, entry: Entry, device: DeviceName) -> Iterator[str]:
    yield f"name: {entry.implementation}"
    function = entry.function
    if not isinstance(function, Definition):
        if function.contract == "torch-extension":
            yield f"contract: torch-extension, entry: {json.dumps(function.name)}"
        yield f"sources: {json.dumps([str(file) for file in function.files])}"
        return
    on_cpu = device == "cpu" and entry.language == "triton"
    yield "device: cpu, interpret: true" if on_cpu else "device: cuda"
    yield (
        f'target: "{ADAPTERS[:-3]}:{_adapter_name(entry)}"'
        if needs_adapter(entry)
        else f'target: "{function.target}"'
    )
    kernels = (plan.kernels[name].file for name in sorted(entry.covers))
    yield f"sources: {json.dumps([str(file) for file in dict.fromkeys([function.file, *kernels])])}"


def _adapter_name(entry: Entry) -> str:
    return f"{entry.kernel}_{entry.implementation}"


def _adapter(entry: Entry) -> Iterator[str]:
    function, match = entry.function, entry.match
    assert isinstance(function, Definition)
    apply = ".apply" if function.role == "autograd" else ""
    yield f"def {_adapter_name(entry)}({', '.join(match.declares)}):"
    yield f"    from {function.module} import {function.name}\n"
    for condition, why in match.guards:
        yield f'    if {condition}:\n        raise NotImplementedError("{why}")'
    yield f"    return {function.name}{apply}({', '.join(match.arguments)})"


def _script(plan: Plan) -> str:
    matches = {entry.match.op: entry.match for entry in plan.entries}
    calls = dict.fromkeys(entry.match.call for entry in plan.entries)
    return _SCRIPT.format(
        script=SCRIPT,
        ops="\n".join(f'    "{op}",' for op in matches),
        lines="\n".join(f"    {line}" for line in [*examples(" ".join(calls)), *calls]),
    )
