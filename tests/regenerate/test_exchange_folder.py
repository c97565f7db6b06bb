"""Runs that are answered by hand do not get into each other's way."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pytest_cgins import config as configuration
from pytest_cgins.config.llm import LlmSettings
from pytest_cgins.core.errors import RegenerateError
from pytest_cgins.regenerate import exchange_folder, run_setup, run_status
from pytest_cgins.regenerate.journal.journal import Journal
from pytest_cgins.regenerate.provider.exchange import Exchange
from tests.regenerate import journals

OTHER = "20260203-040506-cd34"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cgins.yaml").write_text("version: 1\nkernels: {}\n")
    return tmp_path / "cgins.yaml"


def _settings(config: Path, llm: str) -> LlmSettings:
    return run_setup.settings_of(configuration.load(config), run_setup.RunOptions(llm=llm))


def _waiting(config: Path, run: str, *kernels: str, llm: str = "exchange:hand") -> Journal:
    """A run that waits for answers in its folder."""
    targets = [journals.target(kernel) for kernel in kernels]
    own = exchange_folder.own_folder(_settings(config, llm), config.parent, run)
    made = journals.journal(config, *targets, id=run, provider="exchange", llm=llm, exchange=own)
    folder = run_setup.answers_folder(made)
    assert folder is not None
    exchange_folder.claim(made, folder)
    for target in targets:
        request = journals.ask(made, target, model="")
        assert Exchange(folder, run).ask(request, made.folder / request.id) is None
    return made


def test_each_run_has_a_folder_of_its_own(config: Path) -> None:
    """Where none is named, or the usual one, prompts of two runs for one target lie apart, and say which run goes on."""
    for llm in ("exchange", "exchange:.cgins/exchange"):
        assert exchange_folder.own_folder(_settings(config, llm), config.parent, "r") == "../../exchange/r"
    for run in (journals.RUN, OTHER):
        made = _waiting(config, run, "gelu", llm="exchange")
        folder = config.parent / ".cgins" / "exchange" / run
        assert run_setup.answers_folder(made) == folder
        prompt = folder / "gelu-cpu-cpp/attempt-01/generator/prompt.md"
        assert f"`cgins runs resume {run}`" in prompt.read_text()


def test_a_run_of_an_earlier_version_keeps_its_folder(config: Path) -> None:
    """What was begun when all runs shared the usual folder finds its answers there."""
    run = journals.journal(config, journals.target(), provider="exchange", llm="exchange")
    assert run_setup.answers_folder(run) == config.parent / ".cgins" / "exchange"


def test_a_folder_that_is_named_is_shared_by_target(config: Path) -> None:
    """Two runs may use it for different targets; a prompt that waits in it is not written over by another run's."""
    first = _waiting(config, journals.RUN, "gelu")
    _waiting(config, OTHER, "silu")
    third = journals.journal(config, journals.target("silu"), journals.target(), id="20260304-050607-ef56")
    with pytest.raises(RegenerateError) as caught:
        exchange_folder.claim(third, config.parent / "hand")
    assert str(caught.value) == (
        f"{config.parent}/hand: run {OTHER}, {journals.RUN} waits there for answers to prompts of silu-cpu-cpp, "
        "gelu-cpu-cpp\n→ answer them and resume that run, or end it: cgins runs resume RUN --give-up; or name another "
        "folder: --cgins-llm=exchange:FOLDER"
    )
    # The run itself goes on; a request that was answered holds nothing.
    exchange_folder.claim(first, config.parent / "hand")
    journals.answer(first, journals.ask(first, journals.target()))
    shutil.rmtree(config.parent / ".cgins/runs" / OTHER)
    exchange_folder.claim(third, config.parent / "hand")


def test_a_run_that_was_given_up_holds_no_folder(config: Path) -> None:
    """The remedy that the refusal names helps."""
    first = _waiting(config, journals.RUN, "gelu")
    second = journals.journal(config, journals.target(), id=OTHER)
    with pytest.raises(RegenerateError):
        exchange_folder.claim(second, config.parent / "hand")
    run_status.give_up(first)
    exchange_folder.claim(second, config.parent / "hand")


def test_a_folder_whose_owner_nobody_knows(config: Path) -> None:
    """Prompts of an earlier version, and what cannot be read, are taken over by whoever goes on."""
    run = journals.journal(config, journals.target())
    place = config.parent / "hand" / "gelu-cpu-cpp"
    place.mkdir(parents=True)
    for text in ("", "{", '{"run": "x", "journal": "../nowhere"}'):
        (place / exchange_folder.USED_BY).write_text(text)
        exchange_folder.claim(run, config.parent / "hand")
        assert journals.RUN in (place / exchange_folder.USED_BY).read_text()
