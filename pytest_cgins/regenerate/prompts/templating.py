"""Templates of prompts: text files in `templates/`, and what fills them in.

A value is never read as a template. What others wrote goes through `data` or `fenced`, whose fences nothing inside
can end, or through `code` and `one_line`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pytest_cgins.core import dtypes
from pytest_cgins.core.number_text import gflops
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.prompts import blocks

FOLDER = Path(__file__).parent / "templates"


@cache
def environment() -> Environment:
    """Where templates are loaded from, and the filters that they have."""
    jinja = Environment(
        loader=FileSystemLoader(FOLDER),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - prompts are plain text
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    jinja.filters.update(
        code=blocks.code,
        counted=counted,
        data=lambda text, title: blocks.data(title, text),
        fenced=blocks.fenced,
        fmt=format,
        gflops=gflops,
        head=blocks.head,
        middle_out=blocks.middle_out,
        one_line=blocks.one_line,
        short_dtype=lambda dtype: dtypes.SHORT.get(dtype, dtype),
        squeezed=blocks.squeezed,
        tail=blocks.tail,
        without_case=blocks.without_case,
        without_paths=blocks.without_paths,
        without_settings=blocks.without_settings,
    )
    jinja.globals.update(data_rule=blocks.DATA_RULE, text=text)
    return jinja


def render(name: str, /, **values: object) -> str:
    """A template filled in, without blank lines around it; a value that is missing is an error."""
    return environment().get_template(name).render(values).strip("\n")


@cache
def text(name: str) -> str:
    """A file as it is, for what is no template."""
    return (FOLDER / name).read_text(encoding="utf-8").strip("\n")


@cache
def sentences(name: str) -> dict[str, str]:
    """A file of lines `name: sentence`; those that begin with # are comments."""
    lines = text(name).splitlines()
    pairs = (line.partition(": ") for line in lines if line and not line.startswith("#"))
    return {key: sentence for key, _, sentence in pairs}
