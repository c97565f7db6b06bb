"""Device kernels: `__global__` functions with a launch line, compiled by NVRTC.

Behind the source go checks that the compiler makes itself: each argument of a launch line against the
parameter that takes it. So a mismatch is a compiler error at the launch line, and what the loader packs is
what the kernel was compiled for.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path

from pytest_cgins.building.builders import cutlass, device_image, includes
from pytest_cgins.building.builders import plan as plans
from pytest_cgins.building.builders.device_image import Function, Image
from pytest_cgins.building.cache.headers import portable
from pytest_cgins.building.compilers import architectures
from pytest_cgins.building.compilers.process import LOG_LIMIT_NBYTES, Outcome
from pytest_cgins.building.contracts import launch_line
from pytest_cgins.building.contracts import schema as schemas
from pytest_cgins.building.contracts import source as sources
from pytest_cgins.building.contracts.cxx import quoted
from pytest_cgins.building.contracts.launch_line import LaunchPlan
from pytest_cgins.building.nvrtc import cuda_headers, isolated, library
from pytest_cgins.core.case import KernelSource
from pytest_cgins.core.errors import SourceError
from pytest_cgins.core.expression import Expression, Kind, kind
from pytest_cgins.core.text import counted

logger = logging.getLogger(__name__)
OPTIONS = ("--std=c++17", "-lineinfo", "--ptxas-options=-v")
STAND_INS = plans.INCLUDE / "nvrtc"
ARTIFACT = "kernel.cubin"
PARAMETER_CODES = re.compile(r"Lj(\d+)E")


def plan(source: KernelSource) -> plans.Plan:
    """How to build a device kernel.

    Raises:
        SourceError: its schema line or launch line is missing or wrong, or an architecture is not known.
        InfrastructureError: there is no NVRTC.
    """
    _refuse_unseen_headers(source.flags)
    main = Path(source.files[0])
    text = sources.read(main)
    schema_text, line = schemas.locate(text, main)
    schema = schemas.parse(schema_text, f"{main}:{line}")
    launches = launch_line.read(source.launch or launch_line.locate(text, main), schema, str(main))
    archs = source.archs or architectures.present_archs()
    for arch in archs:
        library.check_arch(arch)
    included = includes.scan(main, sources.include_folders(source.flags))
    options, headers = _options(source, included.others)
    checks, expressions = _checks(launches, schema, str(main))
    return plans.Plan(
        compiler="NVRTC",
        identity=(
            library.identity(), *OPTIONS, *archs, *sources.portable_flags(source.flags), _stand_ins(), headers,
            checks.partition("\n")[2].replace(str(main), main.name),
            *portable(included.files, plans.header_roots(source)), *included.others,
        ),
        roots=plans.header_roots(source),
        artifact=ARTIFACT,
        archs=tuple(archs),
        run=partial(
            _compile, text=f"{text}\n{checks}", file=str(main), archs=archs, options=options,
            expressions=expressions, headers=included.files,
        ),
    )  # fmt: skip


def _refuse_unseen_headers(flags: Sequence[str]) -> None:
    """Refuse flags with headers that `includes.scan` does not see: a change there would not be built."""
    for flag in flags:
        if flag == "-I" or re.match(r"--?(?:include-path|pre-include|include)\b", flag):
            raise SourceError(
                f"the flag {flag} brings headers whose changes would not be seen",
                remedy="write -IFOLDER in one word, and #include in the source",
            )


@lru_cache(maxsize=1)
def _stand_ins() -> str:
    """What tells one set of our own headers from another."""
    own = sorted(path for path in STAND_INS.rglob("*") if path.is_file())
    files = [plans.INCLUDE / "cgins_launch.h", *own]
    return hashlib.sha256(b"\0".join(path.name.encode() + path.read_bytes() for path in files)).hexdigest()


def _stands_alone(name: str) -> bool:
    """Whether a header is one of ours that needs none of CUDA's."""
    return any(
        "#include <cu" not in (folder / name).read_text(encoding="utf-8")
        for folder in (STAND_INS, plans.INCLUDE)
        if (folder / name).is_file()
    )


def _options(source: KernelSource, others: Sequence[str]) -> tuple[list[str], str]:
    """NVRTC's options for a source, and what of CUDA's and CUTLASS's headers enters the key."""
    options = [*OPTIONS, "--pre-include=cgins.h", *source.flags, f"-I{STAND_INS}", f"-I{plans.INCLUDE}"]
    if all(_stands_alone(name) for name in others):
        return options, "no CUDA headers"
    templates = cutlass.headers_for(source)
    if templates.version:
        # CuTe's layouts are computed by functions without __device__.
        options += ["-default-device", *(f"-I{folder}" for folder in templates.folders)]
    found = cuda_headers.find(library.version())
    return [*options, *(f"-I{folder}" for folder in found.folders)], f"{found.identity}, {templates.version}"


def _checks(launches: LaunchPlan, schema: schemas.Schema, file: str) -> tuple[str, list[str]]:
    """C++ behind the source that checks its launch lines, and the name expressions to instantiate.

    Each kernel has two expressions: itself, and a variable whose name tells its parameters.
    """
    lines = ["#include <cgins_launch.h>"]
    expressions: list[str] = []
    for launch in launches.launches:
        seen = set()
        for variant in launches.variants():
            kernel = launch.expression(variant)
            if kernel in seen:
                continue
            seen.add(kernel)
            alias = f"cgins_kernel_{len(expressions)}"
            position = f'#line {launch.line} "{quoted(file)}"'
            lines += [position, f"using {alias} = cgins::launch::kernel<decltype(&{kernel})>;"]
            for condition, message in _conditions(launch, kernel, alias, launches=launches, schema=schema):
                # The compiler shows the line of the first word: the rest would be noise.
                check = f'{condition}, "launch line: {quoted(message)}");'
                lines += [position, "static_assert(", position, check]
            codes = ", ".join(f"{alias}::at({index})" for index in range(len(launch.arguments)))
            expressions += [kernel, f"&cgins::launch::parameters<{codes}>"]
    return "\n".join([*lines, ""]), expressions


def _conditions(
    launch: launch_line.Launch, kernel: str, alias: str, *, launches: LaunchPlan, schema: schemas.Schema
) -> Iterator[tuple[str, str]]:
    """What must hold of a kernel's type, as C++, and the message where it does not."""
    yield f"{alias}::is_kernel", f"{kernel} is not a __global__ function"
    items = counted(len(launch.arguments), "item")
    message = f"args= has {items}, the parameters of {kernel} are not as many"
    yield f"{alias}::count == {len(launch.arguments)}", message
    known = launch_line.kinds(schema, workspace=launches.workspace_nbytes is not None)
    readonly = {one.name for one in schema.arguments if one.type == "Tensor" and not one.mutated}
    for index, argument in enumerate(launch.arguments):
        takes, code = "cgins::launch::takes", f"({alias}::at({index}))"
        passed = kind(argument.tree, known)
        shown = f"argument {index + 1} of {kernel}, {argument.text},"
        if passed == "tensor":
            if argument.text.startswith("view"):
                kind_taken, must_be = "view", "must be a cgins::tensor"
            else:
                kind_taken, must_be = "tensor", "must be a pointer to an element type, or void*"
            yield f"{takes}_{kind_taken}{code}", f"{shown} is a tensor: its parameter {must_be}"
            if _only_mention(argument, launches, known) and not argument.names & readonly:
                yield f"{takes}_output{code}", f"{shown} is written to: its parameter must not be const"
        elif passed == "float":
            yield f"{takes}_real{code}", f"{shown} is a float: its parameter must be float or double"
        elif passed != "other":
            yield f"{takes}_number{code}", f"{shown} is a number: its parameter must be an arithmetic type"


def _only_mention(argument: Expression, launches: LaunchPlan, known: Mapping[str, Kind]) -> bool:
    """Whether a tensor is passed once, and so must be written there; an intermediate result is also read."""
    passed = [one for launch in launches.launches for one in launch.arguments]
    mentions = [one for one in passed if one.names & argument.names and kind(one.tree, known) == "tensor"]
    zeroed = {name for launch in launches.launches for name in launch.zero}
    return len(mentions) == 1 and not argument.names & (zeroed | {"workspace"})


def _compile(
    folder: Path,
    name: str,
    deadline: float,
    *,
    text: str,
    file: str,
    archs: Sequence[str],
    options: Sequence[str],
    expressions: Sequence[str],
    headers: Sequence[Path],
) -> Outcome:
    """A `plan.Run` by NVRTC: leaves one file with the code for all architectures, and a depfile."""
    images: list[Image] = []
    log = ""
    command = "\n".join(shlex.join(["nvrtc", f"--gpu-architecture={arch}", *options, file]) for arch in archs)
    # `sm_80` with `compute_80` is one compilation: machine code and its PTX.
    for arch in (arch for arch in archs if "sm_" in arch or arch.replace("compute_", "sm_") not in archs):
        result = isolated.compile(
            text, file, arch, options, expressions=expressions, deadline=deadline, folder=folder, name=name
        )
        log += result.log if result.log.endswith("\n") or not result.log else result.log + "\n"
        state = "done" if result.lowered else "given up" if result.timed_out else "refused"
        logger.info("%s: %s in %.3f s: NVRTC for %s", name, state, result.seconds, arch)
        if not result.lowered:
            status = None if result.timed_out else result.status or 1
            return Outcome(status=status, log=_explained(log), command=command)
        functions = _functions(expressions, result.lowered)
        if result.cubin is not None:
            images.append(Image(arch=arch, code=result.cubin, functions=functions))
        virtual = arch.replace("sm_", "compute_")
        if virtual in archs and result.ptx is not None:
            images.append(Image(arch=virtual, code=result.ptx + b"\0", functions=functions))
    (folder / ARTIFACT).write_bytes(device_image.pack(images))
    # A depfile escapes a blank, a number sign and a backslash, and doubles a dollar.
    escaped = [re.sub(r"([ #\\])", r"\\\1", str(header)).replace("$", "$$") for header in headers]
    depfile = " ".join([f"{ARTIFACT}:", *escaped]) + "\n"
    (folder / "kernel.d").write_text(depfile, encoding="utf-8", errors="surrogateescape")
    return Outcome(status=0, log=log[:LOG_LIMIT_NBYTES], command=command)


def _functions(expressions: Sequence[str], lowered: Sequence[str]) -> dict[str, Function]:
    functions = {}
    for kernel, name, codes in zip(expressions[::2], lowered[::2], lowered[1::2], strict=True):
        tail = codes.partition("10parameters")[2]  # of _ZN5cgins6launch10parametersIJLj…EEE
        functions[kernel] = Function(name=name, parameters=tuple(map(int, PARAMETER_CODES.findall(tail))))
    return functions


def _explained(log: str) -> str:
    """A compiler's log, with lines that say what brings a missing header or instruction."""
    lines = []
    for line in log.splitlines():
        lines.append(line)
        specific = re.search(r"not supported on \.target '?(sm_(?:9|1\d)\d)\b", line)
        if specific:
            own = f"archs: [{specific[1]}a] in cgins.yaml"
            lines.append(f"  ({own} has the instructions of that architecture alone)")
        missing = re.search(r'(?:cannot|could not) open source file "([^"]+)"', line)
        if missing and (package := cuda_headers.package_of(missing[1])):
            toolkit = "install the CUDA toolkit and set CUDA_HOME"
            lines.append(f"  (pip install {package}, or {toolkit}, brings {missing[1]})")
    return "\n".join(lines)
