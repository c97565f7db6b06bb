"""Whether this host can fence in a generated kernel: each part is really tried, in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pytest_cgins.doctor import parse, tools
from pytest_cgins.doctor.findings import Finding, State

SANDBOX = "Sandbox"
GENERATED = "generated kernels, unless --cgins-sandbox=off"

# Trial in probes/isolation.py → name, what is lost without it.
TRIALS = {
    "user_namespace": ("user namespace", GENERATED),
    "network_namespace": ("network namespace", GENERATED),
    "pid_namespace": ("PID namespace", GENERATED),
    "read_only_root": ("read-only mounts", GENERATED),
    "seccomp": ("seccomp", "refusing dangerous system calls"),
    "landlock": ("Landlock", "a second fence around files"),
    "cgroup": ("cgroup", "a limit on the memory of all processes together"),
}


def isolation(*, proc: Path = Path("/proc")) -> tuple[Finding, ...]:
    """One finding a part, and bubblewrap."""
    answer, ran = tools.probe("isolation", limit_s=60.0)
    hint = namespace_remedy(proc)
    return (*(_part(key, answer, ran, hint) for key in TRIALS), _bubblewrap(hint))


def _part(key: str, answer: Any, ran: tools.Ran, hint: str) -> Finding:
    name, disables = TRIALS[key]
    trouble = answer.get(key) if isinstance(answer, dict) else None
    state: State = "unknown" if not isinstance(trouble, str) else "unusable" if trouble else "ok"
    remedies = {
        "seccomp": "use a kernel with CONFIG_SECCOMP_FILTER",
        "landlock": "use Linux 5.13 or later with landlock among its security modules",
        "cgroup": "run within a delegated cgroup: systemd-run --user --scope",
    }
    return Finding(
        group=SANDBOX,
        name=name,
        state=state,
        detail=ran.last_line if trouble is None else trouble,
        disables=disables,
        remedy=remedies.get(key, hint),
    )


def namespace_remedy(proc: Path) -> str:
    """What allows user namespaces here, from the settings that usually forbid them."""
    if sys.platform != "linux":
        return "generate kernels on Linux"
    settings = {
        "sys/kernel/apparmor_restrict_unprivileged_userns": (
            "1",
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        "sys/kernel/unprivileged_userns_clone": ("0", "sysctl kernel.unprivileged_userns_clone=1"),
        "sys/user/max_user_namespaces": ("0", "sysctl user.max_user_namespaces=15000"),
    }
    for path, (forbids, remedy) in settings.items():
        if (tools.text_of(proc / path) or "").strip() == forbids:
            return f"as an administrator: {remedy}"
    return "in a container, allow unshare and mount: --security-opt seccomp=unconfined, or run outside of it"


def _bubblewrap(hint: str) -> Finding:
    where = tools.find("bwrap")
    state: State = "missing"
    version, detail = "", ""
    if where:
        version = parse.written(parse.version(tools.run([where, "--version"]).output))
        trial = [
            where,
            "--unshare-all",
            "--die-with-parent",
            "--ro-bind",
            "/",
            "/",
            "--proc",
            "/proc",
            "true",
        ]
        ran = tools.run(trial)
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
