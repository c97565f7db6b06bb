"""cuobjdump's listing, counted by opcode."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.building import sass
from pytest_cgins.core.errors import InfrastructureError
from tests.building.processes import executable

# cuobjdump 13.2 of code of nvcc 13.0, shortened.
LISTING = """
Fatbin elf code:
================
arch = sm_90a
code version = [1,8]
host = linux
compile_size = 64bit
identifier = k.cu

\tcode for sm_90a
\t.target\tsm_90a

\t\tFunction : _Z4anonPf
\t.headerflags\t@"EF_CUDA_ACCELERATORS EF_CUDA_SM90 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM90)"
        /*0000*/                   LDC R1, c[0x0][0x28] ;                        /* 0x00000a00ff017b82 */
                                                                                 /* 0x000fe20000000800 */
        /*0010*/                   S2R R5, SR_TID.X ;                            /* 0x0000000000057919 */
        /*0020*/              @!P0 LDC.64 R2, c[0x0][0x210] ;                    /* 0x00008400ff027b82 */
        /*0030*/               @P1 HFMA2.MMA R7, -RZ, RZ, 1.875, 0 ;             /* 0x3f800000ff077435 */
        /*0040*/             @UP2 ULDC.64 UR4, c[0x0][0x208] ;                  /* 0x0000820000047ab9 */
        /*0050*/                   IMAD.WIDE.U32 R2, R5, 0x4, R2 ;               /* 0x0000000405027825 */
        /*0060*/                   STG.E desc[UR4][R2.64], R7 ;                  /* 0x0000000702007986 */
        /*0070*/                   EXIT ;                                        /* 0x000000000000794d */
        /*0080*/                   BRA 0x80;                                     /* 0xfffffffc00fc7947 */
        /*0090*/                   NOP;                                          /* 0x0000000000007918 */

Fatbin elf code:
================
arch = sm_80
code version = [1,8]

\tcode for sm_80

\t\tFunction : _Z4anonPf
        /*0000*/                   MOV R1, c[0x0][0x28] ;                        /* 0x00000a0000017a02 */
"""


def test_opcodes_are_counted_by_function() -> None:
    """Predicates and modifiers do not matter; encodings, padding and other architectures are no instructions."""
    found = sass.count(LISTING, "sm_90a")
    assert found == {
        "_Z4anonPf": (
            (("LDC", 2), ("BRA", 1), ("EXIT", 1), ("HFMA2", 1), ("IMAD", 1), ("S2R", 1), ("STG", 1), ("ULDC", 1)),
        )
    }  # fmt: skip
    assert sass.count(LISTING, "sm_80") == {"_Z4anonPf": ((("MOV", 1),),)}
    of_two_files = sass.count(LISTING + LISTING.replace("MOV R1", "LDC R1"), "sm_80")
    assert of_two_files == {"_Z4anonPf": ((("MOV", 1),), (("LDC", 1),))}
    assert sass.count("", "sm_80") == {}


@given(text=st.text(alphabet="/*0af ;@!PUTRSNOPMVD:\nFunction arch = sm_80", max_size=300))
def test_no_listing_makes_the_count_fail(text: str) -> None:
    """A foreign text has counts or none, and is no exception."""
    for mixes in sass.count(text, "sm_80").values():
        assert all(number > 0 for mix in mixes for _, number in mix)


def test_a_tool_that_fails_says_so(tmp_path: Path) -> None:
    """What it printed and the remedy are in the error."""
    tool = executable(tmp_path / "cuobjdump", "#!/bin/sh\necho 'cuobjdump fatal: no cubin' >&2\nexit 3\n")
    with pytest.raises(InfrastructureError, match="ended with 3: cuobjdump fatal: no cubin") as caught:
        sass.listing(tool, tmp_path / "kernel.so")
    assert caught.value.remedy == sass.REMEDY


def test_the_tool_of_cuda_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A toolkit that was named is the one that is used, if it has the tool."""
    tool = executable(tmp_path / "bin" / "cuobjdump", "#!/bin/sh\n")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert sass.disassembler() == tool
    tool.chmod(0o644)
    assert sass.disassembler() != tool


def test_instructions_keep_modifiers_and_operands() -> None:
    """Each line is there with its predicate; the opcode with modifiers is read from it; architectures are told."""
    (lines,) = sass.instructions(LISTING, "sm_90a")["_Z4anonPf"]
    assert lines[2] == "@!P0 LDC.64 R2, c[0x0][0x210]"
    opcodes = [sass.modified(line) for line in lines]
    assert opcodes[2:6] == ["LDC.64", "HFMA2.MMA", "ULDC.64", "IMAD.WIDE.U32"]
    assert sass.modified("HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8]") == "HGMMA.64x128x16.F32.BF16"
    assert sass.modified("{ no instruction }") == ""
    assert sass.archs(LISTING) == ("sm_90a", "sm_80")
