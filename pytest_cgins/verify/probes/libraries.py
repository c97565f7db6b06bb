"""Probe `libraries`: a kernel's library takes what it computes from no other library.

It is judged as it was built, not as it is written: by the symbols that it wants at load. What the run-time libraries of C,
C++, OpenMP and CUDA give is anyone's, and to a torch extension what torch gives but for implementations below the dispatcher,
where no watch sees them. The rest (cuBLAS, cuDNN, oneDNN, a BLAS, a library of the project) is told, and passes with a reason:
`probes: {libraries: {off: "the product is cuBLAS's by design"}}`. By-ways to what is loaded (`dlsym`, `_r_debug`), to other
processes and to the kernel (`fork`, the opcode `syscall`) are `snooping`.

A library of CUDA has its run time inside, which needs `dlsym` and its like, so there they prove nothing. The probe is evaded by a
search of memory without any symbol, with names that are not in the file as they are.
"""

from __future__ import annotations

import re
import struct
import subprocess
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.building.compilers import toolchain
from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import InfrastructureError
from pytest_cgins.verify.probe_support import op_families as families
from pytest_cgins.verify.probes.op_callback import all_operators, remedy

NAME = "libraries"
_NBYTES = 2**26
_BASE = re.compile(
    r"(?:ld-linux.*|ld64|lib(?:c|m|mvec|dl|rt|pthread|stdc\+\+|gcc_s|atomic|quadmath|gomp|omp|iomp5|c\+\+(?:abi)?|cudart|cuda|nvrtc)(?:-[0-9a-f]+)?)\.so.*"
)
_RUNTIME = re.compile(
    r"_ZN?[KVRO]*St|_ZT[ISVT]N?K?(?:St|\w$)|_ZTIN10__cxxabiv1|_ZTVN10__cxxabiv1|_Z(?:GTt)?[nd][wal]|__cxa_|_Unwind_|__gxx_|GOMP_|omp_|__kmpc_|kmp_|"
    r"__gmon_start__|_ITM_|__tls_get_addr|__stack_chk_|_GLOBAL_OFFSET_TABLE_|__(?:a|t|ub)san_|(?:__)?cuda[A-Z]|cu[A-Z]|nvrtc"
)
_TORCH = re.compile(
    r"_Z.*(?:2at|3c10|5torch|6caffe2|8pybind11)|_?Py[A-Z_]|_Z\d+THP|THP|aoti_torch_|torch_|cgins_|Sleef_"
)
BELOW = re.compile(
    r"_ZN2at(?:6native|(?:3cpu|4cuda|4meta|\d+compositeexplicit\w*?)\d+([a-z_]\w*?)E)|aoti_torch_(?:cpu|cuda)_"
)
BYWAY = re.compile(
    r"dl(?:v|m)?(?:sym|open|info)|dl_iterate_phdr|dladdr1?|_r_debug|_dl_\w+|_rtld_global\w*|__libc_dl\w+|_?v?[fF]ork|clone3?|"
    r"exec[lv]\w*|fexecve|posix_spawnp?|system|popen|ptrace|process_vm_\w+|memfd_create|(?:pkey_)?mprotect"
)
_OF_RUN_TIME = ("/proc/self/exe", "/proc/self/maps", "/proc/self/smaps", "/proc/self/status")
"""What CUDA's run time names up to 13.5, which nvcc links into each library; a later one is asked itself."""
_OF_CUDA = re.compile(r"_r_debug|_dl_\w+|_rtld_global\w*")
_NAMED = re.compile(
    rb"(?<=\0)(?:/proc/(?:self|thread-self)/\w+|_r_debug|_rtld_global|aoti_torch_\w+|_ZN2at\w+|"
    rb"_?Py(?:Run|Eval|Import|GILState|Object|Interpreter|ThreadState|Sys|Module|Dict|Frame)_\w+)(?=\0)"
)
_OPCODES = re.compile(rb"\x0f\x05|\x0f\x34|\xcd\x80")


def look_into(path: Path, contract: str, device: str) -> tuple[list[str], list[str]]:
    """What a library takes of others, and the by-ways that it knows, as words; at most eight each."""
    try:
        library = read(path)
    except ValueError as error:
        return [], [f"has a library that cannot be read: {error}"]
    is_extension, is_cuda = contract == "torch-extension", device_of(device).is_cuda
    wanted = [name for name, file in library.wanted.items() if not is_run_time(file)]
    taken = [
        name
        for name in wanted
        if (is_below_dispatcher(name) if is_extension and _TORCH.match(name) else not _RUNTIME.match(name))
    ]
    ways = _OF_CUDA if is_cuda and not is_extension else BYWAY
    byways = [f"takes {name}" for name in library.wanted if ways.fullmatch(name)]
    if not is_extension:
        taken += [name for name in library.texts if name.startswith(("aoti", "_ZN2at")) and name not in taken]
        byways += [
            f"names {name}"
            for name in library.texts
            if name not in {*taken, *library.wanted} and not (is_cuda and _is_of_run_time(name))
        ]
    if _calls_system(path, library):
        byways.append("has system calls of its own in its code")
    return sorted(taken)[:8], sorted(byways)[:8]


def judge(facts: Sequence[str]) -> str:
    """What is wrong; "" if nothing is."""
    if not facts:
        return ""
    return (
        f"the kernel has others compute: its library takes {', '.join(str(name)[:100] for name in facts[:4])}; "
        f"{remedy(NAME)}"
    )


def is_run_time(file: str) -> bool:
    """Whether a library is of those whose functions are anyone's, by its file's name."""
    return _BASE.fullmatch(file) is not None


def _is_of_run_time(text: str) -> bool:
    """Whether the run time that nvcc links into each library has a text: as known, or in the toolkit's own archive."""
    if text in _OF_RUN_TIME:
        return True
    with suppress(InfrastructureError, OSError):
        archives = ("lib*/libcudart_static.a", "targets/*/lib/libcudart_static.a")
        named = f"\0{text}\0".encode()
        return any(
            named in file.read_bytes() for file in toolchain.installation(toolchain.nvcc()[0], archives)
        )
    return False


def is_below_dispatcher(name: str) -> bool:
    """Whether a symbol is torch's implementation of an op, and no allocation or view."""
    found = BELOW.match(name)
    if found is None or found[1] is None:
        return found is not None
    plain = families.plain("aten::" + re.sub(r"_outf?$", "", found[1]))
    known = (families.plain(each.partition(".")[0]) for each in all_operators())
    return not families.is_free(plain) and plain in known


def _calls_system(path: Path, library: Library) -> bool:
    """Whether the bytes of a system call are an instruction, as objdump decodes the functions that have them."""
    for address in library.opcodes[:_MOST]:
        begin = library.functions[bisect_right(library.functions, address) - 1]
        span = (f"--start-address={begin}", f"--stop-address={address + 32}")  # else what it ends in is cut
        command = ["objdump", "-d", *span, str(path)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.SubprocessError):
            return False  # nobody can tell
        if re.search(rf"^ *{address:x}:.*\t(?:syscall|sysenter|int +\$0x80)\b", done.stdout, re.MULTILINE):
            return True
    return False


_MOST = 16


@dataclass(frozen=True, slots=True)
class Library:
    """A shared library, as far as it is read."""

    wanted: dict[str, str]
    """Symbols that others must give, each with the file that its version names, or ""."""
    functions: tuple[int, ...]
    """Where functions begin, in order."""
    opcodes: tuple[int, ...]
    """Addresses at which the bytes of a system call are, within other instructions or not."""
    texts: tuple[str, ...]
    """Strings in it that name ways around the loader."""


def read(path: Path) -> Library:
    """Read an ELF library.

    Raises:
        ValueError: it is none of 64 bits, has no table of sections, or is damaged.
    """
    with path.open("rb") as file:
        content = file.read(_NBYTES)
    try:
        return _read(content)
    except (struct.error, IndexError, OverflowError, UnicodeError) as error:
        raise ValueError(f"{path.name} is damaged: {error}") from error


def _read(content: bytes) -> Library:
    if content[:6] != b"\x7fELF\x02\x01":
        raise ValueError("it is not a library of 64 bits")
    (start,) = struct.unpack_from("<Q", content, 40)
    size, count = struct.unpack_from("<HH", content, 58)
    # type, flags, address, offset, size, link, info, entry size
    sections = [struct.unpack_from("<4xIQQQQII8xQ", content, start + size * index) for index in range(count)]
    tables = {section[0]: section for section in sections}
    if _DYNSYM not in tables:
        raise ValueError("it has no table of what it takes from others")

    def string(table: int, at: int) -> str:
        begin = sections[table][3] + at
        return content[begin : content.index(b"\0", begin)].decode()

    files = dict(_files(content, tables[_VERNEED], string)) if _VERNEED in tables else {}
    wanted, functions = {}, set()
    for kind in (_DYNSYM, _SYMTAB):
        _, _, _, offset, nbytes, link, _, _ = tables.get(kind, (0,) * 8)
        for index in range(1, nbytes // 24):
            name, info, _, section, value = struct.unpack_from("<IBBHQ", content, offset + 24 * index)
            if section and info & 15 == _FUNCTION:
                functions.add(value)
            elif not section and kind == _DYNSYM:
                version = struct.unpack_from("<H", content, tables[_VERSYM][3] + 2 * index)[0] if files else 0
                wanted[string(link, name)] = files.get(version & 0x7FFF, "")
    code = [
        (address, content[at : at + nbytes])
        for _, flags, address, at, nbytes, *_ in sections
        if flags & _EXECUTABLE
    ]
    return Library(
        wanted=wanted,
        functions=tuple(sorted(functions | {address for address, _ in code})),
        opcodes=tuple(address + hit.start() for address, text in code for hit in _OPCODES.finditer(text)),
        texts=tuple(sorted({hit[0].decode() for hit in _NAMED.finditer(content)})),
    )


_SYMTAB, _DYNSYM, _VERNEED, _VERSYM, _FUNCTION, _EXECUTABLE = 2, 11, 0x6FFFFFFE, 0x6FFFFFFF, 2, 4


def _files(
    content: bytes, section: tuple[int, ...], string: Callable[[int, int], str]
) -> Iterator[tuple[int, str]]:
    """Libraries by the number of each version that is wanted of them."""
    place = section[3]
    for _ in range(section[6]):
        count, file, first, following = struct.unpack_from("<2xHIII", content, place)
        entry = place + first
        for _ in range(count):
            number, beyond = struct.unpack_from("<6xH4xI", content, entry)
            yield number, string(section[5], file)
            entry += beyond
        place += following
