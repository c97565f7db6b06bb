"""nvcc's own commands, arranged so that the host's code and each architecture's are compiled side by side.

nvcc runs its tools one after the other; for one architecture `--threads` changes nothing. `nvcc --dryrun` prints
the commands. Where they are not the ones known here (`-rdc`, `-dlto`, another nvcc), nvcc runs them itself.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pytest_cgins.building.compilers.process import ask

# Flags with which device code is linked later: the phases' files then refer to each other in other ways.
OTHERWISE = ("-rdc", "--relocatable-device-code", "-dc", "--device-c", "-dlto", "-dw", "--device-w")
MODULE_ID = "--gen_module_id_file"
OWN_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN")
"""Settings that it repeats, in quotes that nvcc itself does not take off when it links."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """A compilation by nvcc, taken apart."""

    front: Sequence[Sequence[str]]
    """Commands that may run side by side: the host's front end, and one a virtual architecture; or nvcc itself."""
    back: Sequence[Sequence[str]] = ()
    """The command that makes the object file from what they leave."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What the commands refer to."""


def phases(
    command: Sequence[str], folder: Path, depfile: str, *, temporary: Path | None = None, depend: str = "-MMD"
) -> Phases:
    """The phases of an nvcc command that compiles one source with `-c`; nvcc alone where they are not known here.

    Args:
        command: nvcc with all its arguments.
        folder: where it would run.
        depfile: name of the file that lists the headers, in make's syntax.
        temporary: where its temporary files go, by default `folder`: their names are the source's.
        depend: `-MMD` lists the user's headers, `-MD` the system's too.
    """
    parsed = None
    if not any(word.startswith(OTHERWISE) for word in command):
        temporary = temporary or folder
        temporary.mkdir(exist_ok=True)
        with suppress(OSError):
            dry_run = ask([*command, "--dryrun", "--keep", "--keep-dir", str(temporary)], folder=folder)
            parsed = parse(dry_run.log, temporary, depfile, depend) if dry_run.status == 0 else None
    return parsed or Phases(front=[[*command, depend, "-MF", depfile]])


def parse(printed: str, folder: Path, depfile: str, depend: str = "-MMD") -> Phases | None:
    """The phases in what `nvcc --dryrun --keep` printed, see `phases`; the file that they read first is written."""
    environment: dict[str, str] = {}
    lines: list[str] = []
    for line in re.findall(r"^#\$ (.*)$", printed, re.MULTILINE):
        assigned = re.match(r"([A-Za-z_]\w*)=(.*)$", line)
        if assigned is None:
            lines.append(line)
        elif assigned[1] not in OWN_VARIABLES:
            environment[assigned[1]] = _expanded(assigned[2].strip(), environment)
    sorts = [_sort(line) for line in lines]
    found = {sort: [line for line, s in zip(lines, sorts, strict=True) if s == sort] for sort in set(sorts)}
    single = ("preprocess", "cudafe++", "fatbinary", "host")
    several = ("preprocess-device", "cicc", "ptxas")
    if any(len(found.get(sort, [])) != 1 for sort in single) or not all(found.get(sort) for sort in several):
        return None
    if "" in found or len(found["cicc"]) != len(found["preprocess-device"]):
        return None
    identity = re.search(r"--module_id_file_name (\"[^\"]+\"|\S+)", found["cudafe++"][0])
    if identity is None or MODULE_ID not in found["cudafe++"][0]:
        return None
    # cicc waits for cudafe++ only because of this file, which tells one source's internal names from another's.
    digest = hashlib.sha256(str(folder).encode()).hexdigest()
    chains = [
        f"{found['preprocess'][0]} {depend} -MF {depfile} && {found['cudafe++'][0].replace(MODULE_ID, '')}"
    ]
    for preprocess in found["preprocess-device"]:
        chain = [preprocess]
        for line in (line for line in found["cicc"] if _product(preprocess) in line):
            chain += [line, *(ptxas for ptxas in found["ptxas"] if _product(line) in ptxas)]
        chains.append(" && ".join(chain))
    if sum(len(re.findall(r"\bptxas -", chain)) for chain in chains) != len(found["ptxas"]):
        return None
    module_id = f"_{digest[:8]}_7_cuda_cu_{digest[8:16]}"
    (folder / shlex.split(identity[1])[0]).write_text(module_id, encoding="utf-8")
    back = f"{found['fatbinary'][0]} && {found['host'][0]}"
    return Phases(
        front=[["sh", "-c", chain] for chain in chains], back=[["sh", "-c", back]], environment=environment
    )


def _sort(line: str) -> str:
    """Which phase a command is; "ignored" for none, "" for one that is not known."""
    if line.startswith(("rm ", "-- ")):
        return "ignored"
    try:
        words = shlex.split(line)
    except ValueError:
        return ""
    tool = Path(words[0]).name
    if tool in ("cicc", "ptxas", "cudafe++", "fatbinary"):
        return tool
    if "-E" in words:
        device = any(word.startswith("-D__CUDA_ARCH__=") for word in words)
        return "preprocess-device" if device else "preprocess"
    return "host" if "-c" in words else ""


def _product(line: str) -> str:
    """The file that a command writes, as the commands spell it."""
    found = re.findall(r" -o (\"[^\"]+\"|\S+)", line)
    return found[-1] if found else "\0"


def _expanded(value: str, environment: Mapping[str, str]) -> str:
    """A value of nvcc's settings: quoted words stay quoted, and earlier settings are filled in."""
    return re.sub(r"\$(\w+)", lambda name: environment.get(name[1], os.environ.get(name[1], "")), value)
