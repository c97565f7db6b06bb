"""Deaths of processes while answers are under way: none is paid for twice, and none that came is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_cgins.config.llm import Price
from pytest_cgins.core.errors import ProviderError
from pytest_cgins.regenerate.conversation import Answer, Usage
from pytest_cgins.regenerate.provider import courier, files
from pytest_cgins.regenerate.provider.openai_compatible import OpenAICompatible
from tests.regenerate.llm_server import LlmServer, Reply
from tests.regenerate.provider_help import KEY, KEY_ENV, QUICK, outcome, place_of, request, settled

ROOT = Path(__file__).parents[2]

PARENT = """
import sys, time
from pathlib import Path
from pytest_cgins.regenerate.provider.openai_compatible import OpenAICompatible
from tests.regenerate.provider_help import KEY_ENV, QUICK, place_of, request
provider = OpenAICompatible(base_url=sys.argv[1], api_key_env=KEY_ENV, limits=QUICK)
assert provider.ask(request(), place_of(Path(sys.argv[2]), request())) is None
print(provider._courier.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_ENV, KEY)


def _until(done: Callable[[], bool], limit_s: float = 20.0) -> None:
    ends = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _provider(server: LlmServer, **more: object) -> OpenAICompatible:
    return OpenAICompatible(**{"base_url": server.base_url, "api_key_env": KEY_ENV, "limits": QUICK} | more)


def _killed_while_asking(server: LlmServer, run: Path, asked: int = 1) -> int:
    """Start a process that asks, kill it with SIGKILL when the server has the request; pid of its courier."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, server.base_url, str(run)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        server.wait_for(asked)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    return pid


@pytest.mark.exam
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_the_run_is_killed_while_an_answer_is_under_way(tmp_path: Path, stream: bool) -> None:
    """The answer comes to the disk, the courier ends, and a resumed run waits for it without asking again."""
    go_on = threading.Event()

    def script(_: object) -> Reply:
        go_on.wait(20)
        return Reply(text="paid for once", no_stream=not stream)

    with LlmServer(script) as server:
        pid = _killed_while_asking(server, tmp_path)
        place = tmp_path / request().id
        resumed = _provider(server)
        assert resumed.ask(request(), place) is None
        assert files.is_held(place)
        assert not (place / files.ANSWER).exists()
        go_on.set()
        answer = settled(resumed, request(), place)
        _until(lambda: not _runs(pid))
        assert resumed._courier is None
        resumed.close()
        assert len(server.asked) == 1
    assert isinstance(answer, Answer)
    assert (answer.text, answer.tries) == ("paid for once", 1)
    assert not list(tmp_path.rglob("*.part"))
    assert all(KEY.encode() not in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


@pytest.mark.exam
def test_nobody_resumes(tmp_path: Path) -> None:
    """A courier that was left alone writes the answer and ends by itself."""
    with LlmServer([Reply(text="late", hang_s=0.3)]) as server:
        pid = _killed_while_asking(server, tmp_path)
        _until(lambda: not _runs(pid))
    answer = files.answer_in(tmp_path / request().id)
    assert answer is not None
    assert answer.text == "late"


@pytest.mark.exam
def test_the_run_is_killed_in_a_pause(tmp_path: Path) -> None:
    """A courier that was left alone begins no new try; nothing was lost, and a resumed run asks."""
    with LlmServer([Reply.limited("15"), Reply(text="x")]) as server:
        pid = _killed_while_asking(server, tmp_path)
        _until(lambda: not _runs(pid), 10)
        place = tmp_path / request().id
        assert not files.is_settled(place)
        assert not (place / files.SENT).exists()
        answer = outcome(server.base_url, tmp_path)
        assert len(server.asked) == 2
    assert isinstance(answer, Answer)
    assert (answer.tries, answer.usage.estimated) == (1, False)


@pytest.mark.exam
def test_the_machine_dies(tmp_path: Path) -> None:
    """An answer whose courier died is lost: it is counted, asked for again, and its cost estimated."""
    with LlmServer([Reply.hanging(), Reply(text="second")]) as server:
        pid = _killed_while_asking(server, tmp_path)
        os.kill(pid, signal.SIGKILL)
        place = tmp_path / request().id
        _until(lambda: not files.is_held(place))
        assert (place / files.SENT).exists()
        answer = outcome(server.base_url, tmp_path)
        assert len(server.asked) == 2
    assert (files.lost_in(place).count, files.lost_in(place).tries) == (1, 1)
    assert isinstance(answer, Answer)
    assert (answer.text, answer.tries) == ("second", 2)
    assert answer.usage == Usage(
        prompt_tokens=109, cached_tokens=0, answer_tokens=20, usd=None, estimated=True
    )


def test_answers_that_are_lost_again_and_again(tmp_path: Path) -> None:
    """After three lost answers a request is given up, with what to do."""
    with LlmServer() as server:
        place = place_of(tmp_path, request())
        files.note_lost(place, files.LostAnswers(count=3, tries=3))
        provider = _provider(server)
        with pytest.raises(ProviderError, match="was lost 3 times") as raised:
            provider.ask(request(), place)
        assert server.asked == []
    assert str(place / files.LOST) in raised.value.remedy


@pytest.mark.exam
def test_the_courier_dies_under_a_run(tmp_path: Path) -> None:
    """Another takes over; when that happens again and again, the run is told."""
    with LlmServer(lambda _: Reply.hanging()) as server:
        provider = _provider(server)
        place = place_of(tmp_path, request())
        for asked in (1, 2):
            assert provider.ask(request(), place) is None
            server.wait_for(asked)
            assert provider._courier is not None
            provider._courier.kill()
            provider._courier.wait()
            assert provider.wait(5)
        assert provider.ask(request(), place) is None
        server.wait_for(3)
        assert provider._courier is not None
        provider._courier.kill()
        provider._courier.wait()
        with pytest.raises(ProviderError, match=r"died 3 times, last with -9: it said nothing") as raised:
            provider.ask(request(), place)
        provider.close()
    assert raised.value.retry


@pytest.mark.exam
def test_closing_takes_nothing_back(tmp_path: Path) -> None:
    """`close` does not wait for the answer that is under way, which still comes."""
    with LlmServer([Reply(text="x", hang_s=1.5)]) as server:
        provider = _provider(server)
        place = place_of(tmp_path, request())
        assert provider.ask(request(), place) is None
        server.wait_for(1)
        provider.close()
        assert not files.is_settled(place)
        _until(lambda: files.is_settled(place))
        answer = settled(_provider(server), request(), place)
    assert isinstance(answer, Answer)


@pytest.mark.exam
def test_the_courier_is_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its own session, no secret but its key, and takes no module from the project's folder."""
    (tmp_path / "openai.py").write_text("raise SystemExit('of the project')")
    (tmp_path / "json.py").write_text("raise SystemExit('of the project')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_TOKEN", "ghp_mine")
    monkeypatch.setenv("OPENAI_LOG", "debug")
    with LlmServer([Reply(text="x", hang_s=0.2)]) as server:
        provider = _provider(server)
        place = place_of(tmp_path / "run", request())
        provider.ask(request(), place)
        assert provider._courier is not None
        pid = provider._courier.pid
        assert os.getsid(pid) == pid
        server.wait_for(1)
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        assert KEY.encode() in environment
        assert b"ghp_mine" not in environment
        assert b"OPENAI_LOG" not in environment
        assert KEY not in Path(f"/proc/{pid}/cmdline").read_text()
        assert isinstance(settled(provider, request(), place), Answer)
        provider.close()


@pytest.mark.exam
def test_a_failure_can_be_taken_back(tmp_path: Path) -> None:
    """When the remedy was heeded, the request is asked again."""
    with LlmServer([Reply.failing(401), Reply(text="x")]) as server:
        assert isinstance(outcome(server.base_url, tmp_path), ProviderError)
        files.retract_failure(tmp_path / request().id)
        assert isinstance(outcome(server.base_url, tmp_path), Answer)


def test_what_a_failure_took_is_known_when_it_is_taken_back(tmp_path: Path) -> None:
    """Lost answers of a failure stay in the place's books while it is asked again, and are in the usage of its answer."""
    place = tmp_path / request().id
    broken = Reply(text="word " * 40, cut=True)
    with LlmServer([broken, broken, Reply(text="x")]) as server:
        more = {
            "prices": {"tiny-1": Price(input_usd_per_million_tokens=1e4, output_usd_per_million_tokens=1e4)}
        }
        assert isinstance(outcome(server.base_url, tmp_path, **more), ProviderError)
        took = files.taken_in(place)
        assert took is not None
        assert (took.prompt_tokens, took.usd) == (2 * 9, pytest.approx((2 * 9 + took.answer_tokens) / 100))
        assert took.answer_tokens > 0
        files.retract_failure(place)
        assert files.failure_in(place) is None
        assert files.taken_in(place) == took
        answer = outcome(server.base_url, tmp_path, **more)
    assert isinstance(answer, Answer)
    assert answer.tries == 3
    assert answer.usage.prompt_tokens == took.prompt_tokens + 100
    assert answer.usage.answer_tokens == took.answer_tokens + 20
    assert answer.usage.usd == pytest.approx((took.usd or 0.0) + 120 / 100)


def test_a_failure_that_is_taken_back_twice(tmp_path: Path) -> None:
    """A process that dies between the two files of taking back leaves nothing that would be counted twice."""
    place = place_of(tmp_path, request())
    usage = Usage(prompt_tokens=7, cached_tokens=0, answer_tokens=3, usd=0.5)
    failure = files.Failure(what="gave up", remedy="wait", retry=True, tries=4, usage=usage)
    for _ in range(2):
        files.write_json(place / files.ERROR, failure)
        files.retract_failure(place)
        assert files.lost_in(place) == files.LostAnswers(tries=4, usage=usage)
    files.write_json(place / files.ERROR, replace(failure, tries=5, usage=None))
    assert files.taken_in(place) == usage
    files.retract_failure(place)
    assert files.lost_in(place) == files.LostAnswers(tries=5, usage=usage)


def test_a_disk_that_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that cannot be written is held until it can, not thrown away."""
    monkeypatch.setattr(courier, "_DISK_EVERY_S", 0.05)
    place = place_of(tmp_path, request())
    (place / files.ANSWER).mkdir()
    usage = Usage(prompt_tokens=1, cached_tokens=0, answer_tokens=1, usd=None)
    answer = Answer(text="x", finish="stop", model="m", usage=usage, seconds=1.0)
    keeper = threading.Thread(target=courier._keep, args=(place, answer))
    keeper.start()
    time.sleep(0.12)
    (place / files.ANSWER).rmdir()
    keeper.join(5)
    assert files.answer_in(place) == answer


def test_a_request_that_cannot_be_read(tmp_path: Path) -> None:
    """A damaged request ends as a failure of its place, not of the courier."""
    with LlmServer() as server:
        place = place_of(tmp_path, request())
        (place / files.REQUEST).write_text("{")
        provider = _provider(server)
        found = settled(provider, request(), place)
        provider.close()
    assert isinstance(found, ProviderError)
    assert f"{place / files.REQUEST} is damaged" in str(found)


def test_an_address_that_is_none(tmp_path: Path) -> None:
    """An address that no client takes is told with its remedy."""
    found = outcome("ftp://nowhere", tmp_path, limits=replace(QUICK, tries=1))
    assert isinstance(found, ProviderError)
    assert "base_url" in str(found)
