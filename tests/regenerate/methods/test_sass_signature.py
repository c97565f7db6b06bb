"""What machine code says of methods: real listings of small kernels, of several architectures."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.building import sass
from pytest_cgins.regenerate.methods import registry
from pytest_cgins.regenerate.methods.definition import Method, Signature
from pytest_cgins.regenerate.methods.sass_signature import check, instructions, signature_for
from tests.regenerate.methods.write_listings import ARCHS, listing

SHIPPED = registry.shipped()
HERE = Path(__file__).parent
EVERY = ("sm_80", "sm_90a", "sm_100a")
NEW = ("sm_90a", "sm_100a")
# Method, a kernel of families.cu that has it, one that has it not, and architectures.
FAMILIES = [
    ("tensor-core-mma", "warp_mma", "plain", EVERY),
    ("tensor-core-mma", "wgmma", "plain", ("sm_90a",)),
    ("tf32-tensor-cores", "tf32_mma", "warp_mma", ("sm_80", "sm_90a")),
    ("int8-tensor-cores", "int8_mma", "warp_mma", EVERY),
    ("wgmma", "wgmma", "warp_mma", ("sm_90a",)),
    ("fp8-tensor-cores", "two_level_fp8", "wgmma", ("sm_90a",)),
    ("two-level-accumulation", "two_level_fp8", "wgmma", ("sm_90a",)),
    ("tcgen05-mma", "tcgen05", "warp_mma", ("sm_100a",)),
    ("packed-fp32", "packed_fp32", "plain", ("sm_100a",)),
    ("packed-half", "packed_half", "scalar_half", EVERY),
    ("fast-exp2", "fast_exp", "plain", EVERY),
    ("vector-access", "vector_access", "plain", EVERY),
    ("shared-memory-tiling", "shared_tile", "plain", EVERY),
    ("async-copy", "async_pipeline", "shared_tile", EVERY),
    ("multi-stage-pipeline", "async_pipeline", "shared_tile", EVERY),
    ("matrix-loads", "ldmatrix", "shared_tile", EVERY),
    ("warp-shuffle-reduction", "warp_shuffle", "plain", EVERY),
    ("stream-k", "atomic_sum", "plain", EVERY),
    ("aggregated-atomics", "aggregated_atomic", "atomic_sum", EVERY),
    ("tma-load", "tma_load", "async_pipeline", NEW),
    ("transaction-barriers", "tma_load", "tma_multicast", NEW),
    ("tma-multicast", "tma_multicast", "tma_load", NEW),
    ("tma-store", "tma_store", "tma_load", NEW),
    ("dependent-launch", "dependent_launch", "plain", NEW),
    ("register-reallocation", "register_reallocation", "plain", NEW),
    ("cluster-shared-memory", "cluster_memory", "shared_tile", NEW),
    ("ping-pong", "ping_pong", "wgmma", ("sm_90a",)),
    ("ping-pong", "ping_pong", "register_reallocation", ("sm_90a",)),
]
CASES = [(*case[:3], arch) for case in FAMILIES for arch in case[3]]


@cache
def recorded(arch: str) -> tuple[str, ...]:
    return tuple((HERE / "listings" / f"{arch}.sass").read_text().splitlines())


def kernel(lines: tuple[str, ...], arch: str, name: str) -> list[str]:
    found = [line.text for line in instructions(lines, arch) if line.function == name]
    assert found, f"{name} is not in the listing"
    return found


@pytest.mark.parametrize(("method", "has", "lacks", "arch"), CASES)
def test_signatures_tell_kernels_apart(method: str, has: str, lacks: str, arch: str) -> None:
    """Real code that uses a method shows it with the instructions, and code that does not is absent."""
    found = check(kernel(recorded(arch), arch, has), SHIPPED.get(method), arch)
    assert found.shown == "present"
    assert found.lines
    other = check(kernel(recorded(arch), arch, lacks), SHIPPED.get(method), arch)
    assert other.shown == "absent"
    assert other.missing


@pytest.mark.exam
@pytest.mark.skipif(
    shutil.which("nvcc") is None or sass.disassembler() is None, reason="no nvcc or no cuobjdump"
)
@pytest.mark.parametrize("arch", ARCHS)
def test_the_compiler_of_this_machine_says_the_same(arch: str) -> None:
    """The recorded listings are what a compiler and disassembler still make of families.cu."""
    tool = sass.disassembler()
    assert tool is not None
    lines = tuple(listing(tool, arch).splitlines())
    for method, has, lacks, of in CASES:
        if of == arch:
            assert check(kernel(lines, arch, has), SHIPPED.get(method), arch).shown == "present", (
                method,
                has,
            )
            assert check(kernel(lines, arch, lacks), SHIPPED.get(method), arch).shown == "absent", (
                method,
                lacks,
            )


def test_hopper_is_hgmma_in_machine_code() -> None:
    """PTX's word wgmma is in no instruction; a signature that looks for it would never be met."""
    assert not any("WGMMA" in line for line in recorded("sm_90a"))
    assert check(recorded("sm_90a"), SHIPPED.get("wgmma"), "sm_90a").lines[0].text.startswith("HGMMA.64x")


def test_moves_by_half_arithmetic_are_no_half_arithmetic() -> None:
    """HFMA2 also loads constants: `HFMA2.MMA R5, -RZ, RZ, 1.875, 0` shows no packed halves."""
    assert any("-RZ, RZ," in line and "HFMA2" in line for arch in EVERY for line in recorded(arch))
    method = SHIPPED.get("packed-half")
    assert check(["HFMA2.MMA R5, -RZ, RZ, 1.875, 0 ;"], method, "sm_90a").shown == "absent"
    assert check(["HADD2.F32 R5, -RZ, R6.H0_H0 ;"], method, "sm_90a").shown == "absent"


def test_all_must_be_in_one_kernel() -> None:
    """Patterns that belong together do not count from two kernels of a file."""
    signature = Signature(mode="all", patterns=("STS", "LDS"))
    method = Method(
        id="m", title="", axis="memory", priority=1, what="", languages=("cuda",), signatures=(signature,)
    )
    apart = ["Function : a", "/*0000*/ STS [R0], R1 ;", "Function : b", "/*0000*/ LDS R1, [R0] ;"]
    assert check(apart, method, "sm_80").missing == ("LDS",)
    assert check([*apart, "/*0010*/ STS [R0], R1 ;"], method, "sm_80").shown == "present"


def test_unknown_is_never_a_pass() -> None:
    """No signature, none for the architecture, and no code of it are unknown, each with its reason."""
    plain = SHIPPED.get("register-tile")
    assert check(["FFMA R0, R1, R2, R3 ;"], plain, "sm_80").note == "register-tile has no SASS signature"
    assert (
        check(["HMMA.16816 R0 ;"], SHIPPED.get("wgmma"), "sm_80").note
        == "wgmma has no SASS signature for sm_80"
    )
    nothing = check(recorded("sm_80"), SHIPPED.get("vector-access"), "sm_90a")
    assert (nothing.shown, nothing.note) == ("unknown", "the listing has no code for sm_90a")
    for text in ([], ["cuobjdump fatal   : Could not open input file"], ["", "No device code"]):
        assert check(text, SHIPPED.get("vector-access"), "sm_80").shown == "unknown"
    assert check(["LDG.E.128 R0, [R2] ;"], SHIPPED.get("vector-access"), "volta").shown == "unknown"


def test_signatures_follow_the_architecture() -> None:
    """The same method looks for other opcodes on Ada, Hopper and Blackwell."""
    patterns = {}
    for arch in ("sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120"):
        signature = signature_for(SHIPPED.get("fp8-tensor-cores"), arch)
        assert signature is not None
        patterns[arch] = signature.patterns
    assert patterns["sm_89"] == patterns["sm_120"] == (r"QMMA\.",)
    assert patterns["sm_90a"] == (r"QGMMA\.",)
    assert patterns["sm_100a"] == patterns["sm_103a"] == ("UTCQMMA",)


@pytest.mark.exam
@given(
    lines=st.lists(
        st.text(alphabet="/*0af ;@!PUTRSLDGE.128:\nFunction arch = sm_80HMA", max_size=80), max_size=8
    )
)
def test_no_listing_breaks_the_check(lines: list[str]) -> None:
    """Any text has an answer, and present only with lines that show it."""
    for name in ("vector-access", "aggregated-atomics", "register-tile"):
        found = check(lines, SHIPPED.get(name), "sm_80")
        assert (found.shown == "present") <= bool(found.lines)
