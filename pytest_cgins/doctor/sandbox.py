"""Whether this host can fence in a generated kernel: whole sandboxes are made, with a program in them."""

from __future__ import annotations

from pathlib import Path

from pytest_cgins.doctor import tools
from pytest_cgins.doctor.findings import Finding, State
from pytest_cgins.run.sandbox import landlock
from pytest_cgins.run.sandbox.host import namespace_remedy
from pytest_cgins.run.sandbox.sandbox import ways

SANDBOX = "Sandbox"
GENERATED = "generated kernels, unless --cgins-sandbox=off"
# Way → what it lacks, compared with the other.
LACKS = {
    "bubblewrap": "the kernel's own limits on processes and further user namespaces; both are watched or filtered",
}


def isolation(*, proc: Path = Path("/proc")) -> tuple[Finding, ...]:
    """Whether a sandbox can be made and how, and whether bubblewrap can make it."""
    hint, tried = namespace_remedy(proc), ways()
    used = next((way for way, trouble in tried.items() if not trouble), None)
    lacks = [LACKS[used]] if used in LACKS else []
    if landlock.version() < landlock.OLDEST:
        lacks.append("Landlock, a second fence around files: Linux 5.19 or later has it")
    if used is None:
        detail = "; ".join(f"{way}: {trouble}" for way, trouble in tried.items())
    else:
        detail = f"without {', and without '.join(lacks)}" if lacks else ""
    return (
        Finding(
            group=SANDBOX,
            name="sandbox",
            state="ok" if used else "unusable",
            version=used or "",
            detail=detail,
            disables=GENERATED,
            remedy=hint,
        ),
        _bubblewrap(tried["bubblewrap"], hint),
    )


def _bubblewrap(trouble: str, hint: str) -> Finding:
    where = tools.find("bwrap")
    state: State = "missing" if not where else "unusable" if trouble else "ok"
    return Finding(
        group=SANDBOX,
        name="bubblewrap",
        state=state,
        where=where,
        detail=trouble if where else "",
        disables="one of the ways to start a sandbox",
        remedy=hint if where else "apt install bubblewrap",
    )
