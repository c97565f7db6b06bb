"""Recorded conversations: the same answers every time, from files.

The answer to the request `softmax-cpu-cpp/attempt-01/generator` is looked for in this order:

    softmax-cpu-cpp/attempt-01/generator/answer.json   a journal's place: the folder of a run is a recording
    softmax-cpu-cpp/attempt-01/generator/error.json    likewise: the recorded failure
    softmax-cpu-cpp/attempt-01/generator/answer.md     the folder of the exchange provider is one as well
    softmax-cpu-cpp/attempt-01/generator.md            written by hand; see `written`

A recording that knows its prompt (`request.json` beside it, `prompt` in its head) is held against the one that is
asked: with `strict` another prompt is an error, else a line in `notes`.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from pytest_cgins.core import documents
from pytest_cgins.core.errors import JournalError, ProviderError
from pytest_cgins.regenerate.model import Answer, Request
from pytest_cgins.regenerate.provider import files, written_answers


class Replay:
    """Answers from a folder.

    Args:
        folder: of the recordings.
        strict: whether a prompt that differs from the recorded one is an error.
    """

    def __init__(self, folder: Path, *, strict: bool = False) -> None:
        self._folder = folder
        self._strict = strict
        self.notes: list[str] = []
        """What a person should know, one line each."""

    def ask(self, request: Request, place: Path) -> Answer | None:
        """The recorded answer, always at once.

        Raises:
            ProviderError: there is none, or it answers another prompt, or a failure was recorded.
        """
        if files.is_settled(place):
            return files.answer_in(place)
        answer = self._recorded(request, file_of(self._folder, request.id))
        files.write_json(place / files.ANSWER, answer)
        return answer

    def wait(self, timeout_s: float) -> bool:  # noqa: ARG002
        """Nothing is ever under way."""
        return True

    def close(self) -> None:
        """Nothing is held."""

    def _recorded(self, request: Request, base: Path) -> Answer:
        by_hand = base.with_name(f"{base.name}.md")
        if (base / files.ANSWER).exists() or (base / files.ERROR).exists():
            self._hold_against(request, base, "")
            answer = files.answer_in(base)
            assert answer is not None
            return answer
        for path in (base / "answer.md", by_hand):
            if not path.exists():
                continue
            found = written_answers.parse(path.read_bytes(), str(path))
            self._hold_against(request, base, found.prompt)
            if found.error:
                raise ProviderError(found.error, remedy=f"recorded in {path}")
            return found.answer(request)
        raise ProviderError(
            f"no answer to {request.id} is recorded in {self._folder}",
            remedy=f"write the answer to {by_hand}, or replay another folder",
        )

    def _hold_against(self, request: Request, base: Path, known: str) -> None:
        if not known and (base / files.REQUEST).exists():
            try:
                known = written_answers.digest_of(
                    documents.load(Request, (base / files.REQUEST).read_bytes())
                )
            except ValueError as error:
                raise JournalError(
                    f"{base / files.REQUEST} is damaged: {str(error)[:300]}", remedy="delete that file"
                ) from None
        now = written_answers.digest_of(request)
        if not known or known == now:
            return
        what = f"{request.id}: the recorded answer is to another prompt ({known[:12]}) than is asked now ({now[:12]})"
        if self._strict:
            raise ProviderError(what, remedy="record the conversation again, or replay without strict")
        if what not in self.notes:
            self.notes.append(what)


def file_of(folder: Path, request_id: str) -> Path:
    """Where files of a request lie in a folder; never outside of it."""
    parts = PurePosixPath(request_id).parts
    if not parts or any(part in {"/", ".."} for part in parts):
        raise ProviderError(f'"{request_id}" cannot name a file', remedy="report this")
    return folder.joinpath(*parts)
