"""What a host that gives no sandbox would have to allow."""

from __future__ import annotations

from pathlib import Path

_SETTINGS = {
    "sys/kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    "sys/kernel/unprivileged_userns_clone": ("0", "sysctl kernel.unprivileged_userns_clone=1"),
    "sys/user/max_user_namespaces": ("0", "sysctl user.max_user_namespaces=15000"),
}
"""Below /proc: which value forbids user namespaces, and what allows them."""

CONTAINER = (
    "in a container, allow namespaces and mounts: docker run --security-opt seccomp=unconfined "
    "--security-opt apparmor=unconfined --security-opt systempaths=unconfined, or --cap-add SYS_ADMIN "
    "with the first two as root; or run outside of it"
)


def namespace_remedy(proc: Path = Path("/proc")) -> str:
    """What allows user namespaces here, from the settings that usually forbid them."""
    for path, (forbids, remedy) in _SETTINGS.items():
        try:
            setting = (proc / path).read_text().strip()
        except OSError:
            continue
        if setting == forbids:
            return f"as an administrator: {remedy}"
    return CONTAINER
