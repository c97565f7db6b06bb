"""In which form an answer is asked for."""

from __future__ import annotations

from pytest_cgins.regenerate.prompts import blocks, languages
from pytest_cgins.regenerate.prompts.context import Context

LONG_CHARACTERS = 3_000
"""From here on a change is asked for as edits: about eighty lines."""


def described(context: Context) -> str:
    """The form, with the paths of the very files."""
    language = languages.of(context)
    path = context.main or "kernels/x"
    info = f"{languages.fence_of(path, language)} {path}"
    files = ", ".join(blocks.code(one) for one in context.sources)
    whole = (
        "A whole file, in a fence whose info string ends with the path:\n"
        f"````text\n```{info}\n(the whole file)\n```\n````"
    )
    edits = (
        "SEARCH has whole lines exactly as they stand in the file above, as few as occur there once. A fence may "
        "have several edits, and an answer several fences, each with its own file's path:\n"
        f"````text\n```{info}\n<<<<<<< SEARCH\n(lines as they are)\n=======\n(lines as they are to "
        "be)\n>>>>>>> REPLACE\n```\n````"
    )
    parts = [
        (
            f"You may write {files}, and nothing else: an answer with any other path is refused. "
            "Headers that are read only cannot be changed; "
            "if they lack something, write it into your own file."
        ),
    ]
    length = sum(len(text) for text in context.files.values())
    if length >= LONG_CHARACTERS:
        parts += [
            f"Your files are long: change them by edits, and leave the rest as it is. {edits}",
            f"Only if most of a file changes: {whole[0].lower()}{whole[1:]}",
        ]
    elif length:
        parts += [whole, f"Or, for small changes, edits in the same fence. {edits}"]
    else:
        parts.append(whole)
    first = (
        "the cause, and what you change" if any(context.sources.values()) else "how the kernel goes about it"
    )
    parts.append(
        f"First, at most ten lines: {first}. Then the files. No tests, no build scripts, nothing left out "
        "(`...` is not code)."
    )
    return blocks.section("Answer", parts)
