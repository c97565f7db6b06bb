"""Which flags a project may give compilers: those that choose code, not those that choose programs.

A compiler starts what its flags name (`-ccbin`, `-B`, `-fplugin`, `-specs`, `-wrapper`, `-fmodule-mapper=|…`) and reads more
flags from files (`@file`, `-optf`). Such a program is the project's word, which nobody has read. So flags are an
allow-list; who owns the machine names its programs by variables: CXX, NVCC_CCBIN, NVCC_PREPEND_FLAGS.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pytest_cgins.core.case import KernelSource
from pytest_cgins.core.errors import SourceError

_HOST = (
    r"-[DU].+", r"-(?:I|L|isystem|iquote|idirafter|include|imacros)[^@|].*", r"-l(?!dir$)[\w:.+-]+", r"-O[0-9a-z]*", r"-g\w*(?:-\d)?", r"-std=[\w+]+", r"-pthread|-w|-s|-ansi|-rdynamic|-fPIC",
    r"-W(?![alp],)[\w+=-]+", r"-pedantic(?:-errors)?", r"-static-lib(?!gcc$)[\w+]+",
    r"-m(?!llvm)[a-z0-9][\w.+=,-]*",
    # None that loads code, starts a program or reads or writes a file by its name.
    r"-f(?!plugin|pass-plugin|module|dump|offload|profile|auto-profile|use-ld=[^bglm]|callgraph|save)[a-z][\w+-]*(?:=[\w.+,%-]*)?",
    r"-f(?:file|debug|macro)-prefix-map=.+",
    r"-Wp,-[DU][\w=]+", r"-Wa,--noexecstack", r"(?![-@])[^|<>\s]+\.(?:a|o|so(?:\.\d+)*)",
)  # fmt: skip
_NVCC = (
    r"--?use[-_]fast[-_]math", r"--?(?:lineinfo|generate-line-info|device-debug|debug|G|restrict|res-usage|resource-usage|source-in-ptx)",
    r"--?(?:expt-relaxed-constexpr|expt-extended-lambda|extended-lambda|extra-device-vectorization|default-device|dlto|ewp|rdc|dc|dw)",
    r"--?(?:fmad|ftz|prec-div|prec-sqrt|maxrregcount|std|rdc|relocatable-device-code|default-stream|cudart|arch|gpu-architecture)=[\w+.-]+",
    r"--?(?:gencode|generate-code|code|gpu-code)=[\w=,\[\]-]+", r"--?(?:threads|t|split-compile|Ofast-compile|optimize)=\w+",
    r"--?(?:diag-suppress|diag-error|diag-warn|Werror|display-error-number|no-display-error-number|disable-warnings)(?:=[\w,-]+)?",
    r"--?(?:forward-unknown-to-host-(?:compiler|linker)|device-c|device-w|nodlink|dopt|minimal|no-source-include)(?:=\w+)?",
    r"--?(?:define-macro|undefine-macro|pre-include|include-path|system-include|library|library-path)=.+",
)  # fmt: skip
_LINKER = (
    r"-[lL].+", r"-rpath(?:-link)?(?:=.+)?", r"--?(?:no-)?as-needed", r"-z", r"--?no-undefined", r"--?gc-sections", r"-[sSxEO]\d?",
    r"--?strip-(?:all|debug)", r"--?build-id(?:=\w+)?", r"-Bsymbolic(?:-\w+)*", r"-B(?:static|dynamic)", r"--?(?:start|end)-group",
    r"--?(?:no-)?whole-archive", r"--?(?:push|pop)-state", r"--?exclude-libs(?:=.+)?", r"--?(?:no-)?export-dynamic", r"--?enable-new-dtags",
    r"--?disable-new-dtags", r"--?(?:soname|defsym|wrap|undefined|u|h|version-script|hash-style|icf)(?:=.+)?", r"--?allow-multiple-definition",
    r"--?(?:no-)?(?:warn|relax|sort|demangle)[\w-]*(?:=[\w-]+)?", r"(?![-@])[^@|<>]+",
)  # fmt: skip
_PTXAS = (r"(?!-*opt(?:f|ions-file))[\w-]+(?:=[\w.,-]+)?",)
_CUDAFE = (r"--?(?:diag|display)[\w-]+(?:=[\w,-]+)?",)
_FATBIN = (r"--?compress[\w-]*(?:=\w+)?",)
_FORWARDED = {
    "Xcompiler": _HOST, "compiler-options": _HOST, "Xlinker": _LINKER, "linker-options": _LINKER,
    "Xcudafe": _CUDAFE, "Xfatbin": _FATBIN, "fatbin-options": _FATBIN,
    "Xptxas": _PTXAS, "ptxas-options": _PTXAS, "Xnvlink": _PTXAS, "nvlink-options": _PTXAS,
}  # fmt: skip
"""Options whose words are another tool's."""
_SEPARATE = (
    r"-(?:I|L|isystem|iquote|idirafter|include|imacros|D|U|t)|"
    r"--?(?:gencode|generate-code|arch|gpu-architecture|code|gpu-code|std|threads|maxrregcount|diag-suppress)"
)
"""Options whose value is the next word: no flag, and no file of flags, which compilers look for before all else."""
_REMEDY = (
    "leave it out; who owns the machine names programs by CXX, NVCC_CCBIN or NVCC_PREPEND_FLAGS, and a flag that only "
    "chooses code and is refused is missing in this list: tell us"
)


_STATIC_UNWINDER = "-static-libgcc"


def require_allowed(source: KernelSource) -> None:
    """Refuse flags that are not known to start no program and to read no further flags.

    Raises:
        SourceError: there is one.
    """
    for flag in refused(source.flags):
        if _STATIC_UNWINDER in flag:
            raise SourceError(
                f"{source.name}: {flag} links an unwinder in that asks the loader for the "
                "process's other libraries (_dl_find_object), which no kernel may",
                remedy="leave it out: torch needs libgcc_s.so.1 as well, so it is there; -static-libstdc++ may stay",
            )
        raise SourceError(
            f"{source.name}: the flag {flag} is none that a project may give a compiler: it may name a program, or a file with further flags",
            remedy=_REMEDY,
        )


def refused(flags: Sequence[str]) -> Iterator[str]:
    """Those flags that are not allowed, as they are written."""
    words = iter(flags)
    for word in words:
        forwarded = re.fullmatch(rf"--?({'|'.join(_FORWARDED)})(?:=(.*))?", word, re.DOTALL)
        if forwarded:
            given = forwarded[2] if forwarded[2] is not None else next(words, "")
            if not all(_is_one_of(part, _FORWARDED[forwarded[1]]) for part in given.split(",")):
                yield word if forwarded[2] is not None else f"{word} {given}"
        elif re.fullmatch(_SEPARATE, word):
            given = next(words, "")
            if given.startswith(("-", "@")):
                yield f"{word} {given}"
        elif word.startswith("-Wl,"):
            if not all(_is_one_of(part, _LINKER) for part in word.split(",")[1:]):
                yield word
        elif not _is_one_of(word, (*_HOST, *_NVCC)):
            yield word


def _is_one_of(word: str, patterns: Sequence[str]) -> bool:
    return re.fullmatch("|".join(f"(?:{pattern})" for pattern in patterns), word, re.DOTALL) is not None
