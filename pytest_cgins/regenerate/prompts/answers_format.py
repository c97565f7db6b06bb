"""In which form an answer is asked for."""

from __future__ import annotations

from pytest_cgins.regenerate.prompts import blocks, languages
from pytest_cgins.regenerate.prompts.context import Context


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
        "Or, for small changes, edits in the same fence. SEARCH has whole lines exactly as they "
        "stand in the file above and occurs there once:\n"
        f"````text\n```{info}\n<<<<<<< SEARCH\n(lines as they are)\n=======\n(lines as they are to "
        "be)\n>>>>>>> REPLACE\n```\n````"
    )
    parts = [
        (
            f"You may write {files}, and nothing else: an answer with any other path is refused. "
            "Headers that are read only cannot be changed; "
            "if they lack something, write it into your own file."
        ),
        whole,
    ]
    if any(context.files.values()):
        parts.append(edits)
    first = (
        "the cause, and what you change" if any(context.sources.values()) else "how the kernel goes about it"
    )
    parts.append(
        f"First, at most ten lines: {first}. Then the files. No tests, no build scripts, nothing left out "
        "(`...` is not code)."
    )
    return blocks.section("Answer", parts)
