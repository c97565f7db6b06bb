"""What must be known of element types without importing torch: one table, from which others follow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dtype:
    """An element type that a trace may hold."""

    name: str
    """torch's."""
    short: str
    """Name in signatures: `f32`."""
    nbytes: int
    """Bytes of an element."""
    dlpack: int | None = None
    """DLPack's code, by which launchers are told it; None if they take none."""
    element: int | None = None
    """The dtype's number in `cgins_launch.h`, by which device kernels are."""
    cpp: str = ""
    """C++ type in a launch line, as `dtype(x)`; "" if it is no template argument."""
    cuda: str = ""
    """CUDA's own type in a launch line, where that is another."""
    generated: bool = True
    """Recipes can make it; storages of others keep their bytes."""
    lowest: float | None = None
    """Least finite number, if its recipes may hold a mask."""
    digits: int = 9
    """Significant decimal digits after which a number of it is known exactly: ⌈1 + p·log10(2)⌉."""
    limits: tuple[float, float] = (16.0, 1.5)
    """C and c of the derived tolerance."""


_WIDE, _HALF = (64.0, 64.0), (64.0, 4.0)
_LOWEST_16, _LOWEST_BF16, _LOWEST_32 = -65504.0, -3.3895313892515355e38, -3.4028234663852886e38
DTYPES: dict[str, Dtype] = {
    dtype.name: dtype
    for dtype in (
        Dtype("bool", "b8", 1, 6, 0x01, "bool"),
        Dtype("uint8", "u8", 1, 1, 0x21, "unsigned char"),
        Dtype("int8", "i8", 1, 0, 0x11, "signed char"),
        Dtype("int16", "i16", 2, 0, 0x12, "short"),
        Dtype("int32", "i32", 4, 0, 0x14, "int"),
        Dtype("int64", "i64", 8, 0, 0x18, "long long"),
        Dtype("uint16", "u16", 2, 1, 0x22, "unsigned short"),
        Dtype("uint32", "u32", 4, 1, 0x24, "unsigned int"),
        Dtype("uint64", "u64", 8, 1, 0x28, "unsigned long long"),
        Dtype("float16", "f16", 2, 2, 0x32, "cgins::float16", "__half", True, _LOWEST_16, 5, _HALF),
        Dtype("bfloat16", "bf16", 2, 4, 0x42, "cgins::bfloat16", "__nv_bfloat16", True, _LOWEST_BF16, 4),
        Dtype("float32", "f32", 4, 2, 0x34, "float", lowest=_LOWEST_32, limits=_WIDE),
        Dtype("float64", "f64", 8, 2, 0x38, "double", limits=_WIDE),
        Dtype("complex32", "c32", 4, generated=False),
        Dtype("complex64", "c64", 8, 5, 0x58, "float2", limits=_WIDE),
        Dtype("complex128", "c128", 16, 5, 0x60, "double2", limits=_WIDE),
        Dtype("float8_e4m3fn", "f8e4m3fn", 1, 10, 0x61, "cgins::float8_e4m3fn", "__nv_fp8_e4m3", digits=3),
        Dtype("float8_e4m3fnuz", "f8e4m3fnuz", 1, generated=False),
        Dtype("float8_e5m2", "f8e5m2", 1, 12, 0x71, "cgins::float8_e5m2", "__nv_fp8_e5m2", digits=2),
        Dtype("float8_e5m2fnuz", "f8e5m2fnuz", 1, generated=False),
        Dtype("float8_e8m0fnu", "f8e8m0fnu", 1, 14, 0x81, "cgins::float8_e8m0fnu", "__nv_fp8_e8m0", digits=2),
    )
}
"""All dtypes by torch's name."""

ITEMSIZE = {name: dtype.nbytes for name, dtype in DTYPES.items()}
SHORT = {name: dtype.short for name, dtype in DTYPES.items()}
INTEGERS = frozenset(name for name in DTYPES if "int" in name)
"""Signed and unsigned integers; bool is not among them."""
EXPONENTS = "float8_e8m0fnu"
"""Powers of two: recipes draw their exponents, as integers."""
GENERATED = frozenset(name for name, dtype in DTYPES.items() if dtype.generated)
LOWEST = {name: dtype.lowest for name, dtype in DTYPES.items() if dtype.lowest is not None}

MAX_BYTES = 2**33
"""Most bytes that one tensor or storage may claim: 8 GiB."""

SAMPLES = 1024
"""Gold elements that tier `recipe` keeps of each output."""


def extent(shape: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """Elements from the first to one past the last that a strided tensor reaches; 0 if it is empty."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
