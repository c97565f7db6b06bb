"""A coding agent or a person answers, through files.

For the request `softmax-cpu-cpp/attempt-01/generator` the prompt is written to
`<folder>/softmax-cpu-cpp/attempt-01/generator/prompt.md`, and the answer is read from `answer.md` beside it. The run
stops while answers are missing, and is resumed when they are there.
"""

from __future__ import annotations

import time
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from pytest_cgins.core import atomic
from pytest_cgins.core.errors import ProviderError
from pytest_cgins.regenerate.conversation import Answer, Request
from pytest_cgins.regenerate.provider import files, replay
from pytest_cgins.regenerate.provider.replay import file_of

PROMPT = "prompt.md"
ANSWER = "answer.md"

_AT_REST_S = 0.5
_PATIENCE_S = 3.0
_EVERY_S = 0.05

_TOP = """\
<!-- prompt {digest} -->
> **To do:** answer the prompt below, as if it had been said to you, and save the answer as `{answer}` in this folder.
> If it cannot be saved at once, write `{answer}.part` and rename it. Nothing else here is to be changed.
> To say who answered, begin the file with `---`, `model: NAME` and `---`, each on a line of its own.
> Whoever began the run goes on with `{command}`.
"""


@dataclass(eq=False, repr=False)
class Exchange:
    """Answers from a folder in which somebody else writes."""

    folder: Path
    """Of prompts and answers."""
    run: str = ""
    """Name of the run, for the prompts to tell how it is resumed."""
    _: KW_ONLY
    command: str = ""
    """What reads the answers where there is no run to resume."""

    def ask(self, request: Request, path: Path) -> Answer | None:
        """The answer if it is there; else the prompt is.

        Raises:
            ProviderError: what is there is no answer; once that is mended, it may be asked again.
        """
        folder = file_of(self.folder, request.id)
        if files.is_settled(path):
            return files.answer_in(path)
        _offer(prompt_text(request, self.run, command=self.command), folder / PROMPT)
        data = _at_rest(folder / ANSWER)
        if not data.strip():
            return None
        answer, error = replay.parse_written(data, str(folder / ANSWER), request)
        if error:
            raise ProviderError(
                f"{folder / ANSWER} says: {error}", remedy="write an answer, or stop the run", retry=True
            )
        files.write_json(path / files.ANSWER, answer)
        return answer

    def wait(self, timeout_s: float) -> bool:  # noqa: ARG002
        """Answers come by hand."""
        return False

    def close(self) -> None:
        """Nothing is held."""


def prompt_text(request: Request, run: str = "", *, command: str = "") -> str:
    """What is written for whoever answers; `run` and `command` as of `Exchange`."""
    again = f" {run}" if run else ""
    top = _TOP.format(
        digest=replay.digest_of(request), answer=ANSWER, command=command or f"cgins runs resume{again}"
    )
    many = len(request.messages) > 1
    parts = [
        f"<!-- {message.role} -->\n{message.text.strip()}\n" if many else f"{message.text.strip()}\n"
        for message in request.messages
    ]
    return "\n".join([top, *parts])


def _offer(text: str, prompt: Path) -> None:
    """Write the prompt if it is not there as it is; an answer to another one is set aside."""
    try:
        before = prompt.read_text(encoding="utf-8")
    except (FileNotFoundError, UnicodeDecodeError):
        before = ""
    if before == text:
        return
    answer = prompt.with_name(ANSWER)
    # Without a prompt beside it an answer was laid there for this one. The first line has the digest of what is asked.
    if prompt.exists() and answer.exists() and before.partition("\n")[0] != text.partition("\n")[0]:
        number = 1
        while (aside := answer.with_name(f"answer-to-another-prompt-{number}.md")).exists():
            number += 1
        answer.rename(aside)
    atomic.write_text(prompt, text, durable=True)


def _at_rest(path: Path) -> bytes:
    """What a file has when nobody has written to it for a moment; nothing if it is not there or still grows."""
    if path.with_name(f"{path.name}.part").exists():
        return b""
    ends = time.monotonic() + _PATIENCE_S
    while time.monotonic() < ends:
        try:
            before = path.stat()
            data = path.read_bytes()
            after = path.stat()
        except FileNotFoundError:
            return b""
        if not data.strip():
            return b""
        # A clock that goes back makes files of the future; they are taken as old.
        age_s = abs(time.time() - after.st_mtime)
        if (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, len(data)) and age_s > _AT_REST_S:
            return data
        time.sleep(_EVERY_S)
    return b""
