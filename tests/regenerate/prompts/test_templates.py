"""Templates of prompts: each can be read, each kind of kernel has its texts, and what fills them in stays text."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import jinja2
import pytest

from pytest_cgins.regenerate.prompts import assembly, templating, workload
from pytest_cgins.verify.probes.registry import switched_on
from tests.regenerate.prompts.example import context_of

TEMPLATES = sorted(path.relative_to(templating.FOLDER).as_posix() for path in templating.FOLDER.rglob("*.md"))


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_can_be_read(name: str) -> None:
    """Its syntax is right, and the filters that it names are there."""
    templating.environment().get_template(name)


def test_a_name_that_nothing_fills_in_is_an_error() -> None:
    """A misspelt name is never an empty text."""
    with pytest.raises(jinja2.UndefinedError, match="hardware"):
        templating.render("hardware.md")


@pytest.mark.parametrize("language", get_args(workload.Language))
def test_each_language_has_its_texts(language: str) -> None:
    """Who writes it, and what its compiler asks for."""
    assert templating.render("system.md", language=language)
    assert templating.render(f"languages/{language}.md").startswith("- ")


def test_probes_that_are_told_are_those_of_the_gate() -> None:
    """No sentence is about a probe that there is no more."""
    told = {name.partition("@")[0] for name in templating.sentences("probes.txt")}
    assert told <= {*switched_on("full", ()), *switched_on("full", ranked=True)}


def test_what_fills_a_template_in_is_no_template() -> None:
    """Braces and tags in sources stand in the prompt as they are."""
    context = context_of("layer_norm", "cpp")
    text = "// {{ context.config }} {% include 'system.md' %} {# gone #}"
    prompt = assembly.generator(replace(context, sources={context.main: text}, headers={"kernels/x.h": text}))
    assert prompt[-1].text.count(text) == 2
