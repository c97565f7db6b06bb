"""Keys of an environment: they tell which times are comparable, and which ratios.

A time depends on all of the hard key. The ratio of two times that were taken side by side holds for longer, but not
over a change of the soft key: another driver or library may make one arm faster and not the other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_cgins.core.device import device_of
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.session_report import Environment

TIMING_PROTOCOL = 2
"""Version of how times are taken. It is raised where a change of the procedure moves numbers that no kernel moved."""
DIGEST_LENGTH = 16

_GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Key(Document):
    """What must be equal, in words and as a digest."""

    digest: str
    """First 16 hex digits of the sha256 of `parts`, as JSON with sorted names."""
    parts: dict[str, str]
    """Name → value, for a person: `{"driver": "580.65.06"}`."""

    def __post_init__(self) -> None:
        if self.digest != _digest(self.parts):
            raise ValueError(f"the digest {self.digest!r} is not that of {self.parts}")

    def __str__(self) -> str:
        return " · ".join(f"{name} {value}" for name, value in self.parts.items())

    def changes_to(self, other: Key) -> tuple[str, ...]:
        """What another key says differently: `driver 580.65 → 581.10`."""
        names = dict.fromkeys((*self.parts, *other.parts))
        both = ((name, self.parts.get(name, "none"), other.parts.get(name, "none")) for name in names)
        return tuple(f"{name} {one} → {two}" for name, one, two in both if one != two)


def key_of(parts: Mapping[str, str]) -> Key:
    """The key with these parts; empty values are written `none`."""
    written = {name: value or "none" for name, value in parts.items()}
    return Key(digest=_digest(written), parts=written)


def hard_key(environment: Environment, case: Mapping[str, str] | None = None) -> Key:
    """What a change of which makes times another thing; a case adds such as its trace's id and whether caches were cold."""
    shared = {
        "device": environment.device_name,
        "clocks": environment.clock_policy,
        "protocol": str(environment.protocol),
    }
    if device_of(environment.device).is_accelerator:
        # Drivers keep some of it to themselves, one more than the other.
        memory = f"{round(environment.memory_nbytes / _GIB)} GiB"
        shared |= {"SMs": str(environment.sm_count), "memory": memory}
        shared |= {"MIG": _switch(environment.mig), "ECC": _switch(environment.ecc)}
    else:
        shared["cores"] = str(environment.host_cores)
    return key_of({**shared, **(case or {})})


def soft_key(environment: Environment) -> Key:
    """What a change of which makes ratios another thing; on a CPU the interpreter is part of each call."""
    if not device_of(environment.device).is_accelerator:
        names = {"torch": environment.torch, "triton": environment.triton}
        return key_of({**names, "python": environment.python.rpartition(".")[0]})
    return key_of(
        {
            "driver": environment.driver,
            "CUDA": environment.cuda,
            "torch": environment.torch,
            "triton": environment.triton,
            "cuDNN": environment.cudnn,
            "cuBLAS": environment.cublas,
        }
    )


def _switch(on: bool | None) -> str:
    return "unknown" if on is None else "on" if on else "off"


def _digest(parts: Mapping[str, str]) -> str:
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]
