"""The CUDA compiler as a library, and CUDA's headers: what device kernels are built with."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

from pytest_cgins.building.nvrtc import cuda_headers
from pytest_cgins.building.nvrtc import library as compiler
from pytest_cgins.doctor import parse, tools
from pytest_cgins.doctor.compilers import CUDA
from pytest_cgins.doctor.findings import Finding

# A library of the wrong machine or a broken one may take its process down.
TRIAL = """\
import json
from pytest_cgins.core.errors import CginsError
from pytest_cgins.building.nvrtc import library as nvrtc
try:
    result = nvrtc.compile("__global__ void k() {}", "trial.cu", f"sm_{nvrtc.supported()[0]}")
    trouble = "" if result.cubin else result.log
    print(json.dumps([nvrtc.version(), str(nvrtc.find_library() or ""), nvrtc.supported(), trouble]))
except CginsError as error:
    print(json.dumps([[], "", [], error.what]))
"""


def library() -> Finding:
    """Whether NVRTC is there and compiles."""
    found = Finding(
        group=CUDA,
        name="NVRTC",
        state="missing",
        disables="device kernels (contract: device), and fast checks of generated ones",
        remedy=compiler.REMEDY,
    )
    ran = tools.run([sys.executable, "-c", TRIAL], limit_s=60)
    try:
        version, where, archs, trouble = json.loads(ran.output.splitlines()[-1])
    except (ValueError, IndexError):
        return replace(found, state="unusable", detail=f"it could not be tried: {ran.last_line}")
    if trouble:
        there = compiler.find_library()
        return replace(
            found,
            state="unusable" if there else "missing",
            where=str(there or ""),
            detail=trouble.splitlines()[0],
        )
    return replace(
        found,
        state="ok",
        version=parse.written(tuple(version)),
        where=where,
        detail=f"compiles for sm_{archs[0]} to sm_{archs[-1]}",
    )


def headers(nvrtc: Finding) -> Finding:
    """Whether CUDA's headers are there, whole, and of the version of NVRTC, as `library` found it."""
    wanted = tuple(int(part) for part in nvrtc.version.split(".")) if nvrtc.version else ()
    found = cuda_headers.find((wanted[0], wanted[1]) if wanted else None)
    answer = Finding(
        group=CUDA,
        name="CUDA headers",
        state="missing",
        disables="device kernels that include cuda_fp16.h, cub, cooperative groups or other headers of CUDA",
        remedy="pip install 'pytest-cgins[nvrtc]', or install the CUDA toolkit and set CUDA_HOME",
    )
    if not found.folders:
        return answer
    answer = replace(answer, version=parse.written(found.version), where=str(found.folders[0]))
    missing = found.missing()
    if missing:
        packages = sorted({cuda_headers.package_of(header) for header in missing.values()})
        return replace(
            answer,
            state="unusable",
            detail=f"without {', '.join(missing)}",
            disables=f"device kernels that use {', '.join(missing)}",
            remedy=f"pip install {' '.join(packages)}",
        )
    if wanted and found.version != wanted:
        return replace(
            answer,
            state="unusable",
            detail=f"of CUDA {parse.written(found.version)}, and NVRTC is {nvrtc.version}",
            remedy=f"install headers of CUDA {nvrtc.version}: pip install 'nvidia-cuda-runtime=={nvrtc.version}.*' "
            f"'nvidia-cuda-cccl=={nvrtc.version}.*' 'nvidia-cuda-crt=={nvrtc.version}.*'",
        )
    return replace(answer, state="ok")
