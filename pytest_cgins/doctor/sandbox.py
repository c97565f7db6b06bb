"""Whether this host can fence in a generated kernel: each part is really tried, in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_cgins.doctor import parse, tools
from pytest_cgins.doctor.findings import Finding, State
from pytest_cgins.run.sandbox.host import namespace_remedy

SANDBOX = "Sandbox"
GENERATED = "generated kernels, unless --cgins-sandbox=off"

# Trial in probes/isolation.py → name, what is lost without it.
TRIALS = {
    "user_namespace": ("user namespace", f"{GENERATED}; administrators can do without"),
    "network_namespace": ("network namespace", GENERATED),
    "pid_namespace": ("PID namespace", GENERATED),
    "ipc_namespace": ("IPC namespace", GENERATED),
    "read_only_root": ("read-only mounts", GENERATED),
    "mount_setattr": ("mount_setattr", "a quick start where much is mounted: each mount is sealed by itself"),
    "seccomp": ("seccomp", GENERATED),
    "landlock": ("Landlock", "a second fence around files, should the mounts have a hole"),
}
# Way → what it lacks, compared with the other.
LACKS = {
    "bubblewrap": "the kernel's own limits on processes and further user namespaces; both are watched or filtered",
    "namespaces": "",
}


def isolation(*, proc: Path = Path("/proc")) -> tuple[Finding, ...]:
    """Whether a sandbox can be made and how, one finding a part of it, and bubblewrap."""
    answer, ran = tools.probe("isolation", limit_s=90.0)
    hint = namespace_remedy(proc)
    parts = (_part(key, answer, ran, hint) for key in TRIALS)
    return (_whole(answer, ran, hint), *parts, _bubblewrap(hint))


def _whole(answer: Any, ran: tools.ProgramResult, hint: str) -> Finding:
    """What `--cgins-sandbox=on` would do: the trial is a whole sandbox with a program in it."""
    ways = answer.get("ways") if isinstance(answer, dict) else None
    tried = ways if isinstance(ways, dict) and all(isinstance(one, str) for one in ways.values()) else {}
    used = next((way for way, trouble in tried.items() if not trouble), "")
    lacks = LACKS.get(used, "")
    troubles = "; ".join(f"{way}: {trouble}" for way, trouble in tried.items())
    state: State = "ok" if used else "unusable" if tried else "unknown"
    return Finding(
        group=SANDBOX,
        name="sandbox",
        state=state,
        version=used,
        detail=(f"without {lacks}" if lacks else "") if used else troubles or ran.last_line,
        disables=GENERATED,
        remedy=hint,
    )


def _part(key: str, answer: Any, ran: tools.ProgramResult, hint: str) -> Finding:
    name, disables = TRIALS[key]
    trouble = answer.get(key) if isinstance(answer, dict) else None
    state: State = "unknown" if not isinstance(trouble, str) else "unusable" if trouble else "ok"
    remedies = {
        "seccomp": "use a kernel with CONFIG_SECCOMP_FILTER",
        "landlock": "use Linux 5.13 or later with landlock among its security modules",
        "mount_setattr": "use Linux 5.12 or later",
    }
    return Finding(
        group=SANDBOX,
        name=name,
        state=state,
        detail=ran.last_line if trouble is None else trouble,
        disables=disables,
        remedy=remedies.get(key, hint),
    )


def _bubblewrap(hint: str) -> Finding:
    where = tools.find("bwrap")
    state: State = "missing"
    version, detail = "", ""
    if where:
        version = parse.written(parse.version(tools.run([where, "--version"]).output))
        arguments = "--unshare-all --die-with-parent --ro-bind / / --proc /proc true"
        ran = tools.run([where, *arguments.split()])
        state = "ok" if ran.status == 0 else "unknown" if ran.status is None else "unusable"
        detail = "" if state == "ok" else ran.last_line
    return Finding(
        group=SANDBOX,
        name="bubblewrap",
        state=state,
        version=version,
        where=where,
        detail=detail,
        disables="one of the ways to start a sandbox",
        remedy=hint if where else "apt install bubblewrap",
    )
