"""Servers that speak OpenAI's protocol: OpenAI, Gemini, Ollama, vLLM, llama.cpp, and others.

The requests are made by a process of their own, the courier: see there for why.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from pytest_cgins.config.llm import Price
from pytest_cgins.core import documents
from pytest_cgins.core.errors import ProviderError
from pytest_cgins.core.secrets import without_secrets
from pytest_cgins.core.text import counted
from pytest_cgins.core.waiting import Wait
from pytest_cgins.regenerate.conversation import Answer, Request
from pytest_cgins.regenerate.provider import files
from pytest_cgins.regenerate.provider.base import Limits, Order, TokensField
from pytest_cgins.regenerate.provider.failures import key_remedy, scrubbed, shown_url
from pytest_cgins.run.forking import PATH

MOST_AT_ONCE = 8
"""Requests that are under way."""
_LOOK_EVERY_S = 0.05
_MOST_COURIERS = 3
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_OPENAI_ONLY = ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID")


@dataclass(eq=False, repr=False)
class OpenAICompatible:
    """Asks a server."""

    _: KW_ONLY
    base_url: str
    """Its address, with `/v1` or what it has instead."""
    api_key_env: str
    """Variable that holds the key; "" for a server without keys."""
    limits: Limits = field(default_factory=Limits)
    """How long, and how often."""
    stream: bool = True
    """Whether answers are to come in pieces, so that a server that hangs is found out early."""
    prices: Mapping[str, Price] = field(default_factory=dict)
    """By model; answers of others have no cost."""

    def __post_init__(self) -> None:
        self._is_openai = urlsplit(self.base_url).hostname == "api.openai.com"
        self._courier: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self._died = 0
        # Places that this process has ordered, and those that another is at.
        self._ordered: set[Path] = set()
        self._elsewhere: set[Path] = set()
        # Of the tries of each place so much is of earlier runs; and the waits for new tries and for other processes.
        self._told_before: dict[Path, int] = {}
        self._waits: dict[Path, Wait] = {}

    def ask(self, request: Request, folder: Path) -> Answer | None:
        """The answer if it is there, None while it is under way.

        Raises:
            ProviderError: there will be none.
        """
        folder = folder.absolute()
        if files.is_settled(folder):
            self._ordered.discard(folder)
            self._elsewhere.discard(folder)
            self._end_wait(folder)
            return files.answer_in(folder)
        self._look_after_courier()
        if folder in self._ordered:
            return None
        if files.is_held(folder):
            self._elsewhere.add(folder)
            return None
        self._elsewhere.discard(folder)
        if files.is_settled(folder):
            return files.answer_in(folder)
        if len(self._ordered) + len(self._elsewhere) < MOST_AT_ONCE:
            self._order(request, folder)
        return None

    def wait(self, timeout_s: float) -> bool:
        """Wait until an answer or a failure is there, at most so long; always True."""
        ends = time.monotonic() + timeout_s
        while time.monotonic() < ends:
            if any(files.is_settled(place) for place in self._ordered | self._elsewhere):
                return True
            if not all(files.is_held(place) for place in self._elsewhere):
                return True
            if self._ordered and self._courier is not None and self._courier.poll() is not None:
                return True
            self._tell_of_waits()
            time.sleep(min(_LOOK_EVERY_S, timeout_s))
        return True

    def _tell_of_waits(self) -> None:
        """Say what keeps answers: tries that failed, and other processes that ask."""
        server = shown_url(self.base_url)
        for place in self._ordered:
            if failed := files.tries_in(place)[self._told_before.get(place, 0) :].strip():
                self._waits.setdefault(place, Wait(server)).tick(failed.splitlines()[-1].partition(" ")[2])
        for place in self._elsewhere:
            self._waits.setdefault(place, Wait(server)).tick("another process asks it the same")

    def _end_wait(self, folder: Path) -> None:
        if folder in self._waits:
            self._waits.pop(folder).end()

    def close(self) -> None:
        """Ask for nothing more. The courier ends by itself when what is under way has come."""
        for place in tuple(self._waits):
            self._end_wait(place)
        courier, self._courier = self._courier, None
        if courier is None:
            return
        assert courier.stdin is not None
        with suppress(OSError):
            courier.stdin.close()
        if all(files.is_settled(place) for place in self._ordered):
            with suppress(subprocess.TimeoutExpired):
                courier.wait(2.0)
        if courier.poll() is None:
            # Its end is nobody's concern any more; else the interpreter would warn of it.
            courier.returncode = 0
        if self._stderr is not None:
            self._stderr.close()
        self._ordered.clear()

    def _order(self, request: Request, folder: Path) -> None:
        order = self._order_for(request, folder)
        told_before = files.tries_in(folder)
        if self._courier is None:
            self._courier = self._start()
        assert self._courier.stdin is not None
        with suppress(BrokenPipeError):  # If it died, the next look finds out.
            self._courier.stdin.write(documents.dump(order).encode() + b"\n")
            self._courier.stdin.flush()
        self._told_before[folder] = len(told_before)
        self._ordered.add(folder)

    def _order_for(self, request: Request, folder: Path) -> Order:
        key = os.environ.get(self.api_key_env, "").strip() if self.api_key_env else ""
        if self.api_key_env and not key:
            raise ProviderError(
                f"there is no key for {shown_url(self.base_url)}: {self.api_key_env} is not set",
                remedy=key_remedy(self.api_key_env),
            )
        if (lost := files.lost_in(folder).count) >= files.MOST_LOST:
            raise ProviderError(
                f"the answer to {request.id} was lost {counted(lost, 'time')}: the process that waited for it died",
                remedy="see why it dies, as by lack of memory; "
                f'then write 0 for "count" in {folder / files.LOST}, and resume',
            )
        tokens: TokensField = "max_completion_tokens" if self._is_openai else "max_tokens"
        return Order(
            place=str(folder),
            base_url=self.base_url,
            api_key_env=self.api_key_env,
            stream=self.stream,
            tokens_field=tokens,
            limits=self.limits,
            price=self.prices.get(request.model),
        )

    def _start(self) -> subprocess.Popen[bytes]:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        # From a folder where no file of the project can be taken for a module: this process has the key.
        return subprocess.Popen(
            [
                sys.executable,
                "-c",
                f"{PATH}from pytest_cgins.regenerate.provider.courier import main; main()",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            cwd="/",
            env=self._environment(),
            start_new_session=True,
        )

    def _environment(self) -> dict[str, str]:
        """What the courier needs: no secrets but the key, and no word of OpenAI's for others."""
        kept = without_secrets(os.environ)
        names = [self.api_key_env, *_PROXIES, *(name.lower() for name in _PROXIES)]
        names += _OPENAI_ONLY if self._is_openai else ()
        kept.update({name: os.environ[name] for name in names if name and name in os.environ})
        return kept

    def _look_after_courier(self) -> None:
        """Forget a courier that died, so that the next order starts another; what it was at has been lost."""
        courier = self._courier
        if courier is None or courier.poll() is None:
            return
        self._courier = None
        self._ordered.clear()
        self._died += 1
        said = ""
        if self._stderr is not None:
            self._stderr.seek(0)
            said = self._stderr.read()[-1000:].decode(errors="replace").strip()
            self._stderr.close()
        if self._died >= _MOST_COURIERS:
            key = os.environ.get(self.api_key_env, "").strip()
            raise ProviderError(
                f"the process that asks {shown_url(self.base_url)} died {counted(self._died, 'time')}, last with "
                f"{courier.returncode}: {scrubbed(said, key) or 'it said nothing'}",
                remedy="if it was killed for lack of memory, ask for fewer kernels at a time; then resume",
                retry=True,
            )
