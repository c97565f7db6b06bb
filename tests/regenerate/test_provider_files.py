"""Recorded conversations, and answers that come by hand."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.config.llm import LlmSettings
from pytest_cgins.core.errors import ProviderError
from pytest_cgins.regenerate.conversation import Answer, Request
from pytest_cgins.regenerate.provider import files, of_settings, replay
from pytest_cgins.regenerate.provider.exchange import Exchange, prompt_text
from pytest_cgins.regenerate.provider.openai_compatible import OpenAICompatible
from pytest_cgins.regenerate.provider.replay import Replay, file_of
from tests.regenerate.provider_help import place_of, request

ID = "softmax-cpu-cpp/attempt-01/generator"


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _old(path: Path) -> None:
    os.utime(path, (time.time() - 60, time.time() - 60))


def replayed(folder: Path, run: Path, asked: Request | None = None) -> Answer:
    """The answer that a recording has for a request of a new run."""
    asked = asked or request()
    answer = Replay(folder).ask(asked, place_of(run, asked))
    assert answer is not None
    return answer


# --- replay -----------------------------------------------------------------------------------------------------------


def test_an_answer_written_by_hand(tmp_path: Path) -> None:
    """A Markdown file named by the request is its answer, and stays it when the file is gone."""
    file = _write(tmp_path / f"rec/{ID}.md", "```cpp\nint x;\n```\n")
    replay, place = Replay(tmp_path / "rec"), place_of(tmp_path / "run", request())
    answer = replay.ask(request(), place)
    assert answer is not None
    assert (answer.text, answer.finish, answer.model, answer.seconds) == (
        "```cpp\nint x;\n```\n",
        "stop",
        "tiny-1",
        0,
    )
    assert (answer.usage.prompt_tokens, answer.usage.answer_tokens, answer.usage.estimated) == (9, 5, True)
    file.unlink()
    assert replay.ask(request(), place) == answer
    assert replay.wait(1)


def test_a_head_says_more(tmp_path: Path) -> None:
    """What a head of YAML says is taken over; the words follow it."""
    head = "---\nfinish: length\nmodel: other\nseconds: 3\nprompt_tokens: 7\nanswer_tokens: 8\n---\n\nwords\n"
    _write(tmp_path / f"{ID}.md", head)
    answer = replayed(tmp_path, tmp_path / "run")
    assert (answer.text, answer.finish, answer.model, answer.seconds) == ("words\n", "length", "other", 3.0)
    assert (answer.usage.prompt_tokens, answer.usage.answer_tokens, answer.usage.estimated) == (7, 8, False)


def test_a_run_is_a_recording(tmp_path: Path) -> None:
    """The journal of a run, copied elsewhere, gives the same answers and failures."""
    _write(tmp_path / f"rec/{ID}.md", "x")
    second = request("softmax-cpu-cpp/attempt-02/generator")
    _write(
        tmp_path / "rec/softmax-cpu-cpp/attempt-02/generator.md", "---\nerror: the provider gave up\n---\n"
    )
    run = tmp_path / "run"
    first = replayed(tmp_path / "rec", run)
    with pytest.raises(ProviderError, match="the provider gave up"):
        replayed(tmp_path / "rec", run, second)
    failure = files.Failure(what="it broke", remedy="fix it", retry=False, tries=1, usage=None)
    files.write_json(run / second.id / files.ERROR, failure)
    shutil.copytree(run, tmp_path / "copy")
    replay = Replay(tmp_path / "copy")
    assert replay.ask(request(), place_of(tmp_path / "again", request())) == first
    with pytest.raises(ProviderError, match="it broke"):
        replay.ask(second, place_of(tmp_path / "again", second))


def test_an_exchange_is_a_recording(tmp_path: Path) -> None:
    """The folder that an agent answered in can be replayed."""
    _write(tmp_path / f"rec/{ID}/answer.md", "by an agent")
    assert replayed(tmp_path / "rec", tmp_path / "run").text == "by an agent"


def test_another_prompt(tmp_path: Path) -> None:
    """A recording that says which prompt it answers is replayed to any: prompts change with each version."""
    _write(tmp_path / f"{ID}.md", f"---\nprompt: sha256:{'0' * 64}\n---\nx")
    assert replayed(tmp_path, tmp_path / "run").text == "x"


def test_what_is_not_recorded(tmp_path: Path) -> None:
    """The error names the file to write."""
    with pytest.raises(ProviderError, match=f"no answer to {ID} is recorded") as raised:
        replayed(tmp_path, tmp_path / "run")
    assert str(tmp_path / f"{ID}.md") in raised.value.remedy


@pytest.mark.parametrize("name", ["../x", "/etc/x", "", "a/../../x"])
def test_names_stay_in_their_folder(tmp_path: Path, name: str) -> None:
    """No request names a file outside of the folder."""
    with pytest.raises(ProviderError, match="cannot name a file"):
        file_of(tmp_path, name)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"\xff\xfe\x00", "is not UTF-8"),
        (b"x" * (2**22 + 1), "larger than 4194304"),
        (b"---\nfinish: nearly\n---\nx", 'finish is "nearly"'),
        (b"---\nmodel: 3\n---\nx", "model is 3"),
        (b"---\nseconds: -1\n---\nx", "seconds is -1"),
        (b"---\nprompt_tokens: true\n---\nx", "prompt_tokens is True"),
    ],
)
def test_a_written_answer_that_is_wrong(data: bytes, complaint: str) -> None:
    """What is wrong is said with the file's name, and asking again after it was mended will do."""
    with pytest.raises(ProviderError, match=complaint) as raised:
        replay.parse_written(data, "some/answer.md", request())
    assert "some/answer.md" in str(raised.value)
    assert raised.value.retry


@pytest.mark.parametrize(
    "text", ["---\n\nA rule\n---\n", "---\nkey: value\n---\nx", "---\n: : [\n---\nx", "---\n", "--- x"]
)
def test_what_looks_like_a_head(text: str) -> None:
    """An answer may begin with a rule, or with YAML of its own."""
    assert replay.parse_written(text.encode(), "x", request())[0].text == text


@given(st.text())
def test_any_words_come_through(text: str) -> None:
    """Behind a head, all words are kept but for the kind of line ends and empty lines at the beginning."""
    try:
        data = f"---\nfinish: stop\n---\n{text}".encode()
    except UnicodeEncodeError:
        return
    assert replay.parse_written(data, "x", request())[0].text == text.replace("\r\n", "\n").lstrip("\n")


@given(st.binary())
def test_any_bytes_are_an_answer_or_an_error(data: bytes) -> None:
    """Whatever somebody saves, it is read or refused in order."""
    for whole in (data, b"---\n" + data + b"\n---\n"):
        with contextlib.suppress(ProviderError):
            replay.parse_written(whole, "x", request())


# --- exchange ---------------------------------------------------------------------------------------------------------


def test_prompts_wait_for_answers(tmp_path: Path) -> None:
    """Every prompt is written with what to do; the run stops; when answers are there, they are taken."""
    first, second = request("a/attempt-01/generator"), request("b/attempt-01/generator")
    exchange = Exchange(tmp_path / "x")
    for one in (first, second):
        assert exchange.ask(one, place_of(tmp_path / "run", one)) is None
    assert not exchange.wait(60)
    assert (tmp_path / f"x/{second.id}/prompt.md").exists()
    prompt = (tmp_path / f"x/{first.id}/prompt.md").read_text()
    assert "save the answer as `answer.md` in this folder" in prompt
    assert "<!-- system -->\nYou write kernels.\n\n<!-- user -->\nWrite a kernel.\n" in prompt
    _old(_write(tmp_path / f"x/{first.id}/answer.md", "---\nmodel: me\n---\nhere\n"))
    resumed = Exchange(tmp_path / "x")
    answer = resumed.ask(first, place_of(tmp_path / "run", first))
    assert answer is not None
    assert (answer.text, answer.model, answer.usage.estimated, answer.usage.usd) == (
        "here\n",
        "me",
        True,
        None,
    )
    assert resumed.ask(second, place_of(tmp_path / "run", second)) is None
    (tmp_path / f"x/{first.id}/answer.md").unlink()
    assert resumed.ask(first, place_of(tmp_path / "run", first)) == answer


def _part(folder: Path) -> None:
    _old(_write(folder / "answer.md", "half"))
    _write(folder / "answer.md.part", "more")


@pytest.mark.parametrize(
    "written_so_far",
    [
        lambda folder: _write(folder / "answer.md", ""),
        lambda folder: _write(folder / "answer.md", " \n\n"),
        lambda folder: _write(folder / "answer.md.part", "half"),
        lambda folder: _write(folder / ".answer.md.swp", "half"),
        _part,
    ],
)
def test_an_answer_that_is_not_finished(tmp_path: Path, written_so_far: Callable[[Path], object]) -> None:
    """Neither an empty file nor one under another name is an answer."""
    exchange, place = Exchange(tmp_path / "x"), place_of(tmp_path / "run", request())
    assert exchange.ask(request(), place) is None
    written_so_far(tmp_path / "x" / ID)
    assert exchange.ask(request(), place) is None
    assert not files.is_settled(place)


def test_an_answer_that_was_saved_just_now(tmp_path: Path) -> None:
    """A file that was written a moment ago is looked at until it rests, then taken whole."""
    exchange, place = Exchange(tmp_path / "x"), place_of(tmp_path / "run", request())
    exchange.ask(request(), place)
    _write(tmp_path / "x" / ID / "answer.md", "all of it")
    answer = exchange.ask(request(), place)
    assert answer is not None
    assert answer.text == "all of it"


def test_an_answer_of_an_earlier_run(tmp_path: Path) -> None:
    """The answer to another prompt is set aside, not taken; to the same prompt it is taken."""
    exchange = Exchange(tmp_path / "x")
    exchange.ask(request(), place_of(tmp_path / "run1", request()))
    file = tmp_path / "x" / ID / "answer.md"
    _old(_write(file, "to the first"))
    same = exchange.ask(request(), place_of(tmp_path / "run2", request()))
    assert same is not None
    now = request(text="Something else.")
    assert exchange.ask(now, place_of(tmp_path / "run3", now)) is None
    assert not file.exists()
    assert (file.parent / "answer-to-another-prompt-1.md").read_text() == "to the first"
    assert "Something else." in (file.parent / "prompt.md").read_text()


def test_a_prompt_that_an_earlier_version_wrote(tmp_path: Path) -> None:
    """Where only the words around a prompt are others, its answer is the answer."""
    Exchange(tmp_path / "x").ask(request(), place_of(tmp_path / "run", request()))
    folder = tmp_path / "x" / request().id
    _old(_write(folder / "answer.md", "Done.\n"))
    exchange = Exchange(tmp_path / "x", "20260102-030405-ab12")
    answer = exchange.ask(request(), place_of(tmp_path / "run", request()))
    assert isinstance(answer, Answer)
    assert "`cgins runs resume 20260102-030405-ab12`" in (folder / "prompt.md").read_text()


def test_an_answer_that_says_that_there_is_none(tmp_path: Path) -> None:
    """Who cannot answer may say so; a better answer is taken later."""
    exchange, place = Exchange(tmp_path), place_of(tmp_path / "run", request())
    exchange.ask(request(), place)
    file = _write(tmp_path / ID / "answer.md", "---\nerror: I do not know CUDA\n---\n")
    _old(file)
    with pytest.raises(ProviderError, match="says: I do not know CUDA"):
        exchange.ask(request(), place)
    _old(_write(file, "now I do"))
    assert isinstance(exchange.ask(request(), place), Answer)


def test_a_prompt_of_one_message_is_as_it_is() -> None:
    """Without a second message there is nothing to set apart."""
    one = replace(request(), messages=request().messages[1:])
    assert prompt_text(one).endswith("\n\nWrite a kernel.\n")


# --- make -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "url", "env", "limit"),
    [
        ("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", "max_completion_tokens"),
        (
            "gemini",
            "https://generativelanguage.googleapis.com/v1beta/openai/",
            "GOOGLE_API_KEY",
            "max_tokens",
        ),
        ("ollama", "http://localhost:11434/v1", "", "max_tokens"),
    ],
)
def test_servers_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, url: str, env: str, limit: str
) -> None:
    """The three named servers have addresses and variables of their own, which settings replace; OpenAI has its own name
    for the limit, which its models of hidden thought insist on."""
    monkeypatch.setenv(env or "UNUSED_API_KEY", "x")
    settings = LlmSettings(provider=name, runs=tmp_path)
    order = of_settings(settings)._order_for(request(), tmp_path)
    assert (order.base_url, order.api_key_env, order.tokens_field) == (url, env, limit)
    monkeypatch.setenv("MY_API_KEY", "x")
    other = of_settings(replace(settings, base_url="http://x/v1", api_key_env="MY_API_KEY"))
    order = other._order_for(request(), tmp_path)
    assert (order.base_url, order.api_key_env) == ("http://x/v1", "MY_API_KEY")


def test_of_settings(tmp_path: Path) -> None:
    """The section of cgins.yaml becomes a provider with its time-outs."""
    provider = of_settings(LlmSettings(provider="ollama", timeout_s=50, runs=tmp_path))
    assert isinstance(provider, OpenAICompatible)
    assert (provider.limits.try_s, provider.limits.deadline_s) == (50, 400)
    assert isinstance(of_settings(LlmSettings(provider="exchange", path=tmp_path, runs=tmp_path)), Exchange)


def test_a_provider_costs_pytest_no_heavy_import() -> None:
    """Asking a server imports neither its client nor torch into the process that runs the tests."""
    code = (
        "import sys; from pathlib import Path; from pytest_cgins.config.llm import LlmSettings;"
        "from pytest_cgins.regenerate.provider import of_settings;"
        "of_settings(LlmSettings(provider='ollama', runs=Path()));"
        "print([one for one in ('openai', 'httpx', 'httpx2', 'torch', 'yaml', 'pydantic') if one in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
