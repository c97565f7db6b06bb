"""The file that a device kernel is built into: machine code for each architecture, then what is known of it.

    <image> <image> … <JSON> <8 bytes: length of the JSON, little endian> CGINSDK1

A file for one architecture begins with its ELF image, so that disassemblers take it as it is.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pytest_cgins.building.compilers import architectures
from pytest_cgins.core.errors import LaunchError
from pytest_cgins.core.text import counted

MAGIC = b"CGINSDK1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A kernel in the machine code."""

    name: str
    """Its name there."""
    parameters: tuple[int, ...]
    """A code for each parameter, see cgins_launch.h."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """Code for one architecture."""

    arch: str
    """`sm_90a` for machine code, `compute_80` for PTX."""
    code: bytes
    """The cubin, or PTX with a zero byte behind it."""
    functions: dict[str, Function]
    """By C++ expression, e.g. `scale<float>`."""


def pack(images: Sequence[Image]) -> bytes:
    """Images as the bytes of a file."""
    described = [
        {
            "arch": image.arch,
            "nbytes": len(image.code),
            "functions": {kernel: asdict(function) for kernel, function in image.functions.items()},
        }
        for image in images
    ]
    text = json.dumps(described).encode()
    return b"".join([*(image.code for image in images), text, struct.pack("<Q", len(text)), MAGIC])


def unpack(file: Path) -> list[Image]:
    """The images of a file.

    Raises:
        LaunchError: it is not such a file.
    """
    try:
        content = file.read_bytes()
        length, mark = struct.unpack("<Q8s", content[-16:])
        listed: list[dict[str, Any]] = json.loads(content[-16 - length : -16] if mark == MAGIC else b"")
        images = []
        begin = 0
        for described in listed:
            functions = {
                kernel: Function(name=function["name"], parameters=tuple(function["parameters"]))
                for kernel, function in described["functions"].items()
            }
            code = content[begin : begin + described["nbytes"]]
            images.append(Image(arch=described["arch"], code=code, functions=functions))
            begin += described["nbytes"]
        if begin != len(content) - 16 - length:
            raise ValueError(  # noqa: TRY301 - as json and struct raise it
                f"{counted(len(content), 'byte does', 'bytes do')} not hold {counted(begin, 'byte')} of code"
            )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error) as error:
        raise LaunchError(
            f"{file}: not a built device kernel: {error}", remedy="clear the build cache and build it again"
        ) from error
    return images


def choose(images: Sequence[Image], capability: tuple[int, int], where: str) -> Image:
    """The image that a device runs best: its own machine code, else its family's, else PTX.

    Args:
        images: what there is.
        capability: compute capability of the device, e.g. (9, 0).
        where: leads the message.

    Raises:
        LaunchError: the device can run none of them.
    """
    runnable = [image for image in images if architectures.runs_on(image.arch, capability)]
    if not runnable:
        device = f"sm_{capability[0]}{capability[1]}"
        raise LaunchError(
            f"{where}: built for {', '.join(image.arch for image in images)}, which a device {device} cannot run",
            remedy=f"add {device} to archs, or to CGINS_CUDA_ARCHS",
        )
    return max(runnable, key=lambda image: _rank(image.arch))


def _rank(arch: str) -> tuple[bool, int, int]:
    """Machine code goes before PTX, then the latest chip; of one chip what is for it alone, then what is for its family."""
    return arch.startswith("sm_"), architectures.number(arch), "fa".find(arch[-1])
