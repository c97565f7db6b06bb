"""How a model's answer becomes a kernel's sources.

An answer is accepted if it contains whole files, search/replace blocks, JSON, a patch or a unified diff, however they are
fenced or introduced, and if it changes only the kernel's own sources; a test or benchmark that comes with them is left
out. If it gives one file several times, `versions` chooses the text that counts. Edits apply to the current source, or to the whole text that the same answer gives of it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_cgins.core.errors import AnswerError
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.answers import edits, fences, json_answers, own_files, rewritten, versions
from pytest_cgins.regenerate.answers.edits import Edit, LineEdit, apply_edit, apply_line_edits
from pytest_cgins.regenerate.conversation import Answer

MAXIMUM_ANSWER = 4 << 20
MAXIMUM_EDITS = 200
SHAPES = (
    "answer with the whole file in a fenced block, its path behind the language (```cuda kernels/softmax.cu), or with "
    "SEARCH/REPLACE blocks"
)
ENDED = {
    "refusal": (
        "the model refused to answer",
        "ask for the kernel only, without what it may have taken offence at",
    ),
    "filtered": ("the provider withheld the answer", "ask for the kernel only"),
    "tool-calls": ("the answer calls tools, and there are none", SHAPES),
    "empty": ("the answer is empty", SHAPES),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What an answer proposes."""

    files: Mapping[str, str]
    """Path relative to the project, and whole new text, of every own source, changed or not."""
    changed: tuple[str, ...]
    """Those that differ from what they were."""
    left_out: tuple[str, ...] = ()
    """Tests and benchmarks that the answer gives besides."""


@dataclass(slots=True)
class _Proposed:
    """What is gathered from an answer's pieces."""

    wholes: defaultdict[str, list[versions.Whole]] = field(default_factory=lambda: defaultdict(list))
    edits: list[tuple[bool, Edit]] = field(default_factory=list)
    """In order; whether it is of a diff."""
    line_edits: list[LineEdit] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Names of whole files that are a test or a benchmark."""

    unclear: AnswerError | None = None
    """What is wrong with a block that may be of several files; it matters only if there is nothing else."""


def read(answer: Answer, sources: Mapping[str, str]) -> Draft:
    """What an answer proposes for a kernel's own sources.

    Args:
        answer: of a model.
        sources: the own sources, the main one first: path relative to the project, and text; "" for one to be made.

    Raises:
        AnswerError: no source can be had from it, or it touches another file; `code` says why.
    """
    if answer.finish in ENDED:
        what, remedy = ENDED[answer.finish]
        said = own_files.shown(answer.text)
        raise AnswerError(
            f"{what}{f': {said}' if said and answer.finish == 'refusal' else ''}",
            code=answer.finish,
            remedy=remedy,
        )
    if not answer.text.strip():
        raise AnswerError("the answer is empty", code="empty", remedy=SHAPES)
    if len(answer.text) > MAXIMUM_ANSWER:
        raise _too_large("the answer", len(answer.text), MAXIMUM_ANSWER)
    text, is_thought = fences.without_thought(fences.normalise(answer.text))
    is_cut = answer.finish == "length"
    if is_thought and is_cut:
        raise _truncated("while the model was still thinking")
    own = {path: _plain(source) for path, source in sources.items()}
    pieces = fences.cut(rewritten.with_fences(text))
    _refuse_open(pieces, is_cut=is_cut)
    proposed = _gather(pieces, own, is_cut=is_cut)
    files = _assemble(proposed, own)
    return replace(_checked(files, sources), left_out=tuple(dict.fromkeys(proposed.left_out)))


def _plain(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _truncated(where: str) -> AnswerError:
    return AnswerError(
        f"the answer was cut off at its greatest length, {where}",
        code="truncated",
        remedy="answer more briefly: SEARCH/REPLACE blocks with only the lines that change, and little prose",
    )


def _refuse_open(pieces: fences.Pieces, *, is_cut: bool) -> None:
    """A search/replace block without end is never applied; a fence without end may only have lost its last line."""
    if any(not edit.is_closed for edit in pieces.edits):
        if is_cut:
            raise _truncated("inside a SEARCH/REPLACE block")
        raise AnswerError(
            "a SEARCH/REPLACE block is not closed",
            code="truncated",
            remedy="each block is <<<<<<< SEARCH, =======, >>>>>>> REPLACE, each mark on a line of its own",
        )
    if is_cut and any(not block.is_closed for block in pieces.blocks):
        raise _truncated("inside a fenced block")


def _gather(pieces: fences.Pieces, own: Mapping[str, str], *, is_cut: bool) -> _Proposed:
    proposed, prose, paths = _Proposed(), pieces.prose, tuple(own)
    for block in pieces.blocks:
        _gather_block(block, own, proposed)
    for marked in pieces.edits:
        path = own_files.of_names(marked.names, paths) or _only_place(marked, own)
        edit = Edit(path=path, search=marked.search, replace=marked.replace)
        proposed.edits.append((False, edit))
    if not (proposed.wholes or proposed.edits or proposed.line_edits):
        where = json_answers.bare(prose)
        if where:
            if is_cut and not prose[where[0] :].rstrip().endswith(("}", "]")):
                raise _truncated("inside its JSON")
            _take_json(prose[where[0] : where[1]], paths, proposed, is_certain=True)
        elif edits.is_diff(prose):
            proposed.edits += [(True, edit) for edit in edits.read_diff(prose, "", paths, proposed.left_out)]
        elif len(paths) == 1 and not pieces.blocks and (text := rewritten.whole_source(prose, *paths)):
            if is_cut:
                raise _truncated("inside its source")
            proposed.wholes[paths[0]].append(versions.Whole(text=text, is_named=True, above=""))
    return proposed


def _gather_block(block: fences.Block, own: Mapping[str, str], proposed: _Proposed) -> None:
    paths = tuple(own)
    words = set(fences.languages(block.info))
    if words & {"diff", "patch", "udiff"} or (
        not own_files.language_of(block.info) and edits.is_diff(block.text)
    ):
        named = own_files.of_names([block.info, *[line for line in block.above if line.strip()][-1:]], paths)
        proposed.edits += [
            (True, edit) for edit in edits.read_diff(block.text, named, paths, proposed.left_out)
        ]
        return
    is_json = bool(words & {"json", "json5", "jsonc"})
    if json_answers.is_json(block.text, is_called_so=is_json) and (is_json or not words):
        claimed, _ = own_files.of_block(block, paths)  # refuses `config.json`
        if not claimed and _take_json(block.text, paths, proposed, is_certain=False):
            return
    if not block.text.strip():
        return
    try:
        path, text = own_files.of_block(block, paths)
    except AnswerError as error:
        if error.code != "foreign-file" or not (name := own_files.companion_of(block, paths)):
            raise
        proposed.left_out.append(name)
        return
    if path and own[path].lstrip().startswith(block.text.lstrip().partition("\n")[0]):
        text = block.text
    is_named = bool(path)
    if not path:
        fits = own_files.fitting(block.info, own)
        if len(fits) > 1 and _looks_like_code(text):
            proposed.unclear = AnswerError(
                f"a fenced block does not say which file it is, of {', '.join(f'`{fit}`' for fit in fits)}",
                code="which-file",
                remedy="write each file's path behind the language: ```cuda kernels/softmax.cu",
            )
            return
        if len(fits) != 1 or (not words and not _looks_like_code(text)):
            return
        (path,) = fits
    whole = versions.Whole(
        text=fences.unescape(text), is_named=is_named, above=" ".join((*block.above[-12:], block.info))
    )
    proposed.wholes[path].append(whole)


def _take_json(text: str, paths: Sequence[str], proposed: _Proposed, *, is_certain: bool) -> bool:
    said = json_answers.read(text, paths, is_certain=is_certain)
    if said is None:
        return False
    for path, whole in said.files:
        proposed.wholes[path].append(versions.Whole(text=whole, is_named=True, above=""))
    proposed.edits += [(False, edit) for edit in said.edits]
    proposed.line_edits += said.line_edits
    proposed.left_out += said.left_out
    return True


def _looks_like_code(text: str) -> bool:
    return re.search(r"[;{}][ \t]*$|^[ \t]*(?:def|import|from|#include)\b", text, re.MULTILINE) is not None


def _only_place(marked: fences.SearchReplace, own: Mapping[str, str]) -> str:
    """The file of an edit that names none: the only one, or the only one that has the lines."""
    having = [
        path for path, text in own.items() if marked.search.strip("\n") and marked.search.strip("\n") in text
    ]
    if len(own) == 1:
        return next(iter(own))
    if len(having) == 1:
        return having[0]
    raise AnswerError(
        f"a SEARCH/REPLACE block does not say which file it is of; its lines are in {len(having)} of "
        f"{', '.join(f'`{path}`' for path in own)}",
        code="edit-ambiguous" if having else "edit-not-found",
        remedy="write the file's path on a line above <<<<<<< SEARCH",
    )


def _assemble(proposed: _Proposed, own: Mapping[str, str]) -> dict[str, str]:
    count = len(proposed.edits) + len(proposed.line_edits)
    if not (proposed.wholes or count):
        raise proposed.unclear or AnswerError(
            "there is no source in the answer", code="no-code", remedy=SHAPES
        )
    if count > MAXIMUM_EDITS:
        raise AnswerError(
            f"the answer has {counted(count, 'edit')}; at most {MAXIMUM_EDITS} are taken",
            code="too-large",
            remedy="give the whole file",
        )
    files = dict(own)
    edited = {edit.path for _, edit in proposed.edits} | {edit.path for edit in proposed.line_edits}
    for path, wholes in proposed.wholes.items():
        meant = [whole for whole in wholes if whole.is_named] if path in edited else wholes
        if meant:
            files[path] = versions.chosen(path, meant, own[path], has_edits=path in edited)
    for path in edited:
        try:
            files[path] = _edited(path, files[path], proposed)
        except AnswerError:
            # The same change may be given twice: as edits of what was, and as the text that they make.
            if files[path] == own[path] or versions.ended(
                _edited(path, own[path], proposed)
            ) != versions.ended(files[path]):
                raise
    return {path: versions.ended(text) for path, text in files.items()}


def _edited(path: str, text: str, proposed: _Proposed) -> str:
    """A text with the edits of its file applied: those by line numbers first, which mean the lines as they were."""
    text = apply_line_edits(text, [edit for edit in proposed.line_edits if edit.path == path])
    for is_diff, edit in proposed.edits:
        if edit.path == path:
            text = (edits.apply_hunk if is_diff else apply_edit)(text, edit)
    return text


def _checked(files: Mapping[str, str], sources: Mapping[str, str]) -> Draft:
    changed = tuple(path for path, text in files.items() if text != versions.ended(_plain(sources[path])))
    for path in changed:
        if not files[path].strip():
            raise AnswerError(f"the answer leaves nothing of `{path}`", code="no-code", remedy=SHAPES)
        check_characters(path, files[path], sources[path])
    missing = [path for path, text in files.items() if not text.strip() and path not in changed]
    if missing:
        raise AnswerError(
            f"the answer does not give `{missing[0]}`, which is to be made", code="no-code", remedy=SHAPES
        )
    if not changed:
        raise AnswerError(
            "the answer changes nothing: its sources are what they were",
            code="unchanged",
            remedy="change the source so that it does what was asked for",
        )
    final = dict(sources)
    for path in changed:  # with the line ends of the source that it replaces
        final[path] = files[path].replace("\n", "\r\n") if "\r\n" in sources[path] else files[path]
    return Draft(files=final, changed=changed)


# ---- characters that no source may have: a person does not see them in a pull request, or they are no text


MAXIMUM_SOURCE_NBYTES = 256 << 10
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def check_characters(path: str, text: str, before: str) -> None:
    """Refuse a text that is too large, or has control or invisible characters that the source did not have.

    Raises:
        AnswerError: `too-large`, `control-characters` or `invisible-characters`.
    """
    size = len(text.encode("utf-8", errors="surrogatepass"))
    if size > MAXIMUM_SOURCE_NBYTES:
        raise _too_large(f"`{path}`", size, MAXIMUM_SOURCE_NBYTES)
    invisible = "an invisible character, which makes code read as what it is not"
    for pattern, code, what in (
        (CONTROL, "control-characters", "a control character"), (INVISIBLE, "invisible-characters", invisible)
    ):  # fmt: skip
        for found in pattern.finditer(text):
            if found[0] not in before:
                line = text.count("\n", 0, found.start()) + 1
                name = unicodedata.name(found[0], "unnamed").lower()
                raise AnswerError(
                    f"`{path}`, line {line}, has {what}: U+{ord(found[0]):04X} ({name})",
                    code=code,
                    remedy="write it as an escape (\\u200b, \\0), or leave it out",
                )


def _too_large(what: str, size: int, most: int) -> AnswerError:
    return AnswerError(
        f"{what} has {counted(size, 'byte')}; at most {most} are taken",
        code="too-large",
        remedy="leave out tables and repeated code: compute them, or use templates and macros",
    )
