"""What must be known of element types without importing torch."""

from __future__ import annotations

ITEMSIZE: dict[str, int] = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex32": 4,
    "complex64": 8,
    "complex128": 16,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
}
"""Bytes an element, by torch's name: the dtypes that a trace may hold."""

SHORT: dict[str, str] = {
    "bool": "b8",
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e5m2": "f8e5m2",
    "float8_e5m2fnuz": "f8e5m2fnuz",
    "float8_e8m0fnu": "f8e8m0fnu",
    **{name: name.replace(kind, kind[0]) for kind in ("uint", "int", "float", "complex") for name in ITEMSIZE
       if name.startswith(kind) and "_" not in name},
}  # fmt: skip
"""Names for signatures: `f32`, `bf16`, `i64`."""

INTEGERS = frozenset(name for name in ITEMSIZE if "int" in name)
"""Signed and unsigned integers; bool is not among them."""

GENERATED = INTEGERS | {"bool", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"}
"""Dtypes that recipes can make; storages of others keep their bytes."""

LOWEST = {"float16": -65504.0, "bfloat16": -3.3895313892515355e38, "float32": -3.4028234663852886e38}
"""Least finite numbers of the dtypes whose recipes may hold a mask."""

MAX_BYTES = 2**33
"""Most bytes that one tensor or storage may claim: 8 GiB."""

SAMPLES = 1024
"""Gold elements that tier `recipe` keeps of each output."""


def extent(shape: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """Elements from the first to one past the last that a strided tensor reaches; 0 if it is empty."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
