"""Which of a kernel's own sources an answer means, and the refusal of all else that it names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from pytest_cgins.core.errors import AnswerError
from pytest_cgins.regenerate.answers import fences

EXTENSIONS = {
    "cuda": ((".cu", ".cuh"), (".h", ".hpp", ".cpp", ".cc")),
    "cpp": ((".cpp", ".cc", ".cxx", ".h", ".hpp", ".hh", ".c"), (".cu", ".cuh")),
    "c": ((".c", ".h", ".cpp", ".cc", ".cxx", ".hpp"), (".cu", ".cuh")),
    "python": ((".py",), ()),
}
"""What a language's files end in: those that it is for, and those for which models say it, too."""
LANGUAGES = {
    "cuda": "cuda", "cu": "cuda", "cuh": "cuda", "cuda-cpp": "cuda", "cudac++": "cuda", "nvcc": "cuda",
    "cpp": "cpp", "c++": "cpp", "cc": "cpp", "cxx": "cpp", "hpp": "cpp", "h": "cpp", "h++": "cpp", "c": "c",
    "python": "python", "py": "python", "python3": "python", "triton": "python", "cute": "python",
}  # fmt: skip
KNOWN = r"cu|cuh|cpp|cc|cxx|c|h|hpp|hh|py|pyi|pyc|ya?ml|json|toml|ini|cfg|txt|md|sh|pt|safetensors|so|ptx|lock|patch"
PATH = re.compile(
    rf"(?:[A-Za-z]:)?[\w.+@\\/~-]*[\w+-]\.(?:{KNOWN})\b(?![\w\\/])|(?:\.{{0,2}}/)?[\w.+@-]+(?:/[\w.+@-]+)*/Makefile"
)
HEADING = re.compile(
    r"^[ \t]*(?:[#>*+-]+[ \t]+|\d+[.)][ \t]+)*(?:(?:new|updated|full|complete|final|corrected|fixed|modified)[ \t]+)?"
    r"(?:(?:file ?name|file ?path|file|path|source)[ \t]*:?[ \t]*)?(\S+?)"
    r"(?:[ \t]*\((?:[^()]{0,40})\))?[ \t]*:?[ \t]*$",
    re.IGNORECASE,
)
OF_TITLE = re.compile(r"\b(?:name|title)\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s}]+)", re.IGNORECASE)
COMPANION = re.compile(
    r"(?:(?:test|bench|benchmark|check|demo)(?:_\w+)?|\w+_(?:test|bench|benchmark))\.(?:py|cu|cpp|cc|c|sh)"
)
MAXIMUM_LINE = 400
COMMENT = re.compile(r"^[ \t]*(?://+|#+|/\*+)[ \t]*(.*?)[ \t]*(?:\*/)?[ \t]*$")
OF_INFO = re.compile(r"\b(?:file|path|filename)\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s}]+)", re.IGNORECASE)
CHANGES = re.compile(
    rf"\b(?:update|change|edit|modify|create|overwrite|replace|add)\b(?:[ \t]+(?:also|the|a|new|file|this|to|in))*[ \t]*"
    rf"[`*\"']*({PATH.pattern})",
    re.IGNORECASE,
)


def resolve(named: str, own: Iterable[str]) -> str:
    """The own source that a name means.

    An absolute path counts if it ends with the path of one own source; less than the whole path if it fits one only.

    Raises:
        AnswerError: `foreign-file`: it is none; `which-file`: it may be several.
    """
    own = tuple(own)
    path = _clean(named)
    parts = path.split("/")
    if path in own:
        return path
    is_absolute = path.startswith(("/", "~")) or re.match(r"[A-Za-z]:", path) is not None
    if ".." in parts or not path:
        raise foreign(named, own)
    if is_absolute:
        found = [name for name in own if path.endswith("/" + name)]
        found = [name for name in found if len(name) == max(map(len, found))]
    else:
        found = [name for name in own if name.endswith("/" + path)]
    if len(found) > 1:
        raise AnswerError(
            f"`{shown(named)}` may be {_listed(found)}", code="which-file", remedy="write the whole path"
        )
    if not found:
        raise foreign(named, own)
    return found[0]


def foreign(named: str, own: Iterable[str], *, what: str = "touches") -> AnswerError:
    """The refusal of an answer that names a file which is not the kernel's own."""
    return AnswerError(
        f"the answer {what} `{shown(named)}`, which is not one of the kernel's own sources; none of it was used",
        code="foreign-file",
        remedy=f"change only {_listed(own)}: tests, configuration, traces and all other files stay as they are",
    )


def of_block(block: fences.Block, own: Sequence[str]) -> tuple[str, str]:
    """The own source that a fenced block says it is, and its text without a comment that only names it.

    Returns:
        The path, "" where the block names none.

    Raises:
        AnswerError: it names another file.
    """
    for claim in _claims_of_info(block.info):
        return resolve(claim, own), block.text
    above = [line for line in block.above if line.strip()][-1:]
    for line in above:
        claim = claim_of(line)
        if claim:
            return resolve(claim, own), block.text
    first, _, rest = block.text.lstrip("\n").partition("\n")
    comment = COMMENT.match(first)
    if comment and (claim := claim_of(comment[1])):
        return resolve(claim, own), rest
    for line in above:
        found = _mention(line, own, language_of(block.info))
        if found:
            return found, block.text
    return "", block.text


def companion_of(block: fences.Block, own: Sequence[str]) -> str:
    """The name of a test or benchmark that a block says it is, beside the kernel; "" for any other file."""
    first = COMMENT.match(block.text.lstrip("\n").partition("\n")[0])
    above = [line for line in block.above if line.strip()][-1:]
    claims = [*_claims_of_info(block.info), *map(claim_of, [*above, *([first[1]] if first else [])])]
    name = next(filter(None, claims), "")
    return name if is_companion(name, own) else ""


def is_companion(named: str, own: Sequence[str]) -> bool:
    """Whether a whole file that an answer gives is a test or benchmark beside the kernel: it is left out, not refused."""
    path = _clean(named)
    return not path.endswith(tuple(own)) and COMPANION.fullmatch(path.rpartition("/")[2]) is not None


def of_names(names: Sequence[str], own: Sequence[str]) -> str:
    """The own source that lines around an edit name; "" where they name none."""
    for line in names:
        stripped = re.sub(r"^[ \t]*(?://+|#+|/\*+)[ \t]*|[ \t]*\*/[ \t]*$", "", line)
        for claim in (claim_of(line), claim_of(stripped), *_claims_of_info(line)):
            if claim:
                return resolve(claim, own)
        found = _mention(line, own, "")
        if found:
            return found
    return ""


def fitting(info: str, own: Mapping[str, str]) -> tuple[str, ...]:
    """Own sources that a block without a name may be, by its language; none for languages of no kernel."""
    words = list(fences.languages(info))
    language = language_of(info)
    if not language:
        return tuple(own) if not words else ()
    for endings in EXTENSIONS[language]:
        found = tuple(path for path in own if path.endswith(endings))
        if found:
            return found
    return ()


def language_of(info: str) -> str:
    """`cuda`, `cpp`, `c` or `python`; "" for another or none."""
    return next((LANGUAGES[word] for word in fences.languages(info) if word in LANGUAGES), "")


def claim_of(line: str) -> str:
    """The path that a line consists of, in whatever dress; "" if it is anything else."""
    plain = re.sub(r"[*`\"']{1,3}(?=[\w./\\~])|(?<=[\w:])[*`\"']{1,3}(?=[\s:.)]|$)", "", line.strip())
    found = HEADING.match(plain) if len(plain) <= MAXIMUM_LINE else None
    if found is None:
        return ""
    word = found[1].rstrip(":")
    return word if is_path(word) else ""


def is_path(word: str) -> bool:
    """Whether a word looks like the path of a file."""
    return len(word) <= MAXIMUM_LINE and PATH.fullmatch(word) is not None


def _claims_of_info(info: str) -> list[str]:
    info = info[:MAXIMUM_LINE]
    marked = [found.strip("\"'") for found in OF_INFO.findall(info)]
    marked += [found for found in (word.strip("\"'") for word in OF_TITLE.findall(info)) if is_path(found)]
    words = [
        part
        for word in re.split(r"[\s,{}()]+", info)
        if "=" not in word
        for part in (_after_language(word), word)
        if part and is_path(part.strip("*`\"'"))
    ]
    return [word.strip("*`\"'") for word in [*marked, *words]]


def _after_language(word: str) -> str:
    """The path of `cuda:kernels/softmax.cu`."""
    language, colon, path = word.partition(":")
    return path if colon and language.lower() in LANGUAGES else ""


def _mention(line: str, own: Sequence[str], language: str) -> str:
    """The only own source that a sentence speaks of; "" for none or several.

    Raises:
        AnswerError: the sentence says that another file is changed.
    """
    found, others = set(), []
    line = line[:MAXIMUM_LINE]
    for word in PATH.findall(line):
        try:
            found.add(resolve(word, own))
        except AnswerError:
            others.append(word)
    if not found and others and (changed := CHANGES.search(line)):
        raise foreign(changed[1], own)
    if len(found) == 1 and not others:
        (path,) = found
        endings = EXTENSIONS[language] if language else ((path,), ())
        return path if path.endswith((*endings[0], *endings[1])) else ""
    return ""


def _clean(named: str) -> str:
    path = named.strip().strip("`*\"'").strip().replace("\\", "/")
    return re.sub(r"/{2,}|/\./", "/", re.sub(r"^(\./)+", "", path))


def shown(text: str) -> str:
    """A name of the answer, safe and short enough for a message."""
    text = "".join(character if character.isprintable() else "?" for character in text.strip())
    return text if len(text) <= 120 else text[:117] + "…"


def _listed(paths: Iterable[str]) -> str:
    return ", ".join(f"`{path}`" for path in paths)
