"""Reading what tools and system files say. Pure functions: text in, values out, never an exception."""

from __future__ import annotations

import re

Version = tuple[int, ...]

CAP_SYS_ADMIN = 21
CAP_PERFMON = 38


def version(text: str) -> Version:
    """The first dotted number, `(12, 6, 77)` of "release 12.6, V12.6.77" being (12, 6); () if there is none."""
    found = dotted(text)
    return tuple(int(part) for part in found.split(".")) if found else ()


def dotted(text: str) -> str:
    """The first dotted number as it is written, with the zeros of `570.99.01`; "" if there is none."""
    found = re.search(r"(?<![\w.])[Vv]?(\d{1,9}(?:\.\d{1,9})+)", text)
    return found[1] if found else ""


def written(value: Version) -> str:
    """`12.6`."""
    return ".".join(str(part) for part in value)


def compiler(text: str) -> tuple[str, Version]:
    """Family (`gcc`, `clang` or "") and version, from the output of `--version`."""
    first = text.strip().partition("\n")[0]
    # A distribution's own version stands in parentheses, before the compiler's.
    bare = re.sub(r"\([^()]*\)", " ", first)
    family = "clang" if "clang" in first.lower() else ""
    if not family and ("Free Software Foundation" in text or re.match(r"\S*(gcc|g\+\+)", first)):
        family = "gcc"
    return family, version(bare)


def nvcc(text: str) -> Version:
    """Version from `nvcc --version` (and cuobjdump's): the full one where there is one."""
    found = re.search(r"release\s+\S+\s+V(\d{1,9}(?:\.\d{1,9})+)", text)
    return version(found[1]) if found else version(text)


def newest_gcc(host_config: str) -> int | None:
    """Greatest major version of gcc that a toolkit's `crt/host_config.h` lets pass; None if it names none."""
    limits = re.findall(r"#\s*if\s+__GNUC__\s*>\s*(\d{1,3})\b", host_config)
    return max(map(int, limits)) if limits else None


def toolkit(dryrun: str) -> str:
    """The toolkit's folder, from `nvcc --dryrun`: also right where nvcc is a wrapper; "" if it does not say."""
    found = re.search(r"^#\$ TOP=(\S.*?)\s*$", dryrun, re.MULTILINE)
    return found[1] if found else ""


def cuda_version(number: int) -> Version:
    """`(12, 8)` of CUDA's own 12080; () for what is no version."""
    return (number // 1000, number % 1000 // 10) if number >= 1000 else ()


def parameters(text: str) -> dict[str, str]:
    """`name: value` lines, as in /proc/driver/nvidia/params."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, colon, value in pairs if colon and name.strip()}


def profiling_is_restricted(params: str) -> bool | None:
    """Whether only administrators may read performance counters; None if the driver's file does not say."""
    found = parameters(params)
    for name in ("RmProfilingAdminOnly", "NVreg_RestrictProfilingToAdminUsers"):
        if found.get(name) in ("0", "1"):
            return found[name] == "1"
    return None


def capabilities(status: str) -> int | None:
    """The set of effective capabilities, from /proc/<pid>/status; None if it has none."""
    digits = parameters(status).get("CapEff", "")
    return int(digits, 16) if re.fullmatch(r"[0-9a-fA-F]{1,16}", digits) else None


def has_capability(capability_set: int, bit: int) -> bool:
    """Whether the bit is in the set."""
    return bool(capability_set >> bit & 1)


def size(nbytes: float) -> str:
    """`139.8 GiB`."""
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} GiB"
