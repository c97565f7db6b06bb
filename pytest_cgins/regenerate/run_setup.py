"""How a run is conducted, whether pytest or a command began it: who is asked, in which sandbox, and what is shown."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import TextIO, cast

from pytest_cgins import config as configuration
from pytest_cgins.config import Config
from pytest_cgins.config.llm import LlmSettings
from pytest_cgins.config.llm_options import overridden
from pytest_cgins.core.errors import CginsError, ConfigError, ProviderError
from pytest_cgins.core.options import Policy
from pytest_cgins.core.text import UNLIMITED
from pytest_cgins.regenerate import exchange_folder, progress, run_status
from pytest_cgins.regenerate.executor import executor
from pytest_cgins.regenerate.journal.journal import Journal
from pytest_cgins.regenerate.progress import Progress
from pytest_cgins.regenerate.run_status import RunResult, shown_path
from pytest_cgins.run import environment
from pytest_cgins.run.sandbox.outside import has_gpu
from pytest_cgins.run.sandbox.sandbox import Sandbox


@contextmanager
def interrupts() -> Iterator[Callable[[], None]]:
    """Remember that SIGINT came, beside what Python does about it; only where nobody else handles it.

    Yields:
        What raises KeyboardInterrupt if it came and was dropped.
    """
    came: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        came.append(number)
        signal.default_int_handler(number, frame)

    def check() -> None:
        if came:
            raise KeyboardInterrupt

    in_main = threading.current_thread() is threading.main_thread()
    is_ours = in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, hear)
    try:
        yield check
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


EXIT_WAITING = 7
"""Exit code when a run stopped because its answers come by hand and are not there yet."""

UNFENCED = "cgins: no sandbox: kernels that a model wrote run with all that you may do (--cgins-sandbox=off)"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What the command line says of a run."""

    llm: str = ""
    """`--cgins-llm`."""
    model: str = ""
    """`--cgins-model`."""
    policy: str = ""
    """`--cgins-policy`."""
    budget: str = ""
    """`--cgins-budget`."""
    runs: str = ""
    """`--cgins-runs`."""
    executor: str = ""
    """`--cgins-executor`."""
    here: Path = field(default_factory=Path.cwd)
    """Folder in which it was given: its relative paths start there."""


def settings_of(config: Config, asked: RunOptions) -> LlmSettings:
    """Who is asked.

    Raises:
        ConfigError: nobody is named, what is said does not go together, or there is no such executor.
        ProviderError: the variable with the provider's key is not set.
    """
    executor.check(asked.executor)
    found = overridden(
        config.llm, llm=asked.llm, model=asked.model, budget=asked.budget, root=config.root, here=asked.here
    )
    if found is None:
        raise ConfigError(
            f"{config.file} does not say which model is asked",
            remedy="add a section llm to it, or give --cgins-llm=PROVIDER and --cgins-model=NAME",
        )
    if found.asks_server and found.api_key_env and not os.environ.get(found.api_key_env):
        raise ProviderError(
            f"{found.api_key_env} is not set, which is to hold the key of {found.provider}",
            remedy=f"export {found.api_key_env}=…; or name another variable: llm.api_key_env",
        )
    if asked.policy:
        found = replace(found, policy=cast("Policy", asked.policy))
    return replace(found, runs=(asked.here / asked.runs).absolute()) if asked.runs else found


def sandbox_of(choice: str) -> Sandbox | None:
    """The fence around candidates; None where the user wants none.

    Args:
        choice: `auto`, `on` or `off`.

    Raises:
        SandboxUnavailable: this host cannot make one, and the user did not say that it may be left out.
    """
    if choice == "off":
        return None
    made = Sandbox(devices=has_gpu())
    made.require()
    return made


def sandbox_told(choice: str) -> Sandbox | None:
    """The same; that there is none is told on stderr."""
    fence = sandbox_of(choice)
    if fence is None:
        print(UNFENCED, file=sys.stderr)
    return fence


def carry_out(
    journal: Journal,
    config: Config,
    settings: LlmSettings,
    *,
    sandbox: Sandbox | None,
    workers: Mapping[str, str] | None = None,
    file: TextIO | None = None,
    gives_up: bool = False,
) -> RunResult | None:
    """Do what a journal says, and show it; None after Ctrl-C.

    Args:
        journal: held by this process.
        config: the project's file.
        settings: who is asked.
        sandbox: around candidates.
        workers: added to the environment of workers.
        file: where to show it, by default stderr.
        gives_up: ask for nothing more, and end searches with the best that they have.

    Raises:
        CginsError: the project is not what it was, or nobody can be asked.
    """
    from rich.console import Console

    from pytest_cgins.regenerate.run import Conditions, Run

    if environment.has_secrets():
        environment.shield()
    console = Console(file=file or sys.stderr, highlight=False, markup=False, emoji=False)
    shown = Progress(console)
    console.print(f"cgins: run {journal.record.id}, in {shown_path(journal.folder)}", soft_wrap=True)
    try:
        with shown, interrupts() as check:
            conditions = Conditions.here(
                sandbox, environment=workers or {}, on_event=shown, check=check, gives_up=gives_up
            )
            ran = Run(journal, config, settings, conditions).work()
    except KeyboardInterrupt:
        again = run_status.resume_command(journal)
        console.print(f"cgins: interrupted; all that was done is kept. To go on: {again}", soft_wrap=True)
        return None
    columns = console.width if console.is_terminal else UNLIMITED
    console.print(summary(journal, ran, columns), end="", soft_wrap=True)
    return ran


def summary(journal: Journal, ran: RunResult, width: int) -> str:
    """What a run came to, and what to do next."""
    results = [(result, run_status.spent_on(journal, result.target)) for result in ran.results]
    lines = [progress.table(results, journal.folder, width), f"cgins: {ran.spent.words()}"]
    lines += [
        f"cgins: cgins proposal show {shown_path(journal.folder / result.proposal)}"
        for result in ran.results
        if result.proposal
    ]
    prompts = answers_folder(journal) if journal.record.provider == "exchange" else None
    if prompts is not None and any(result.state == "waiting" for result in ran.results):
        lines.append(f"cgins: prompts are in {shown_path(prompts)}: write answer.md beside each")
    if any(result.state in ("waiting", "stopped") for result in ran.results):
        lines.append(f"cgins: to go on: {run_status.resume_command(journal)}")
    return "\n".join(lines) + "\n"


def config_of(journal: Journal) -> Config:
    """The project's file that a journal is about.

    Raises:
        ConfigError: it is not there any more, or wrong.
    """
    file = Path(os.path.normpath(journal.folder / journal.record.config))
    return configuration.load(file, require_traces=False, require_sources=False)


def options_of(journal: Journal) -> RunOptions:
    """What the command line said when the run began."""
    record = journal.record
    here = Path(os.path.normpath(journal.folder.absolute() / record.here))
    return RunOptions(
        llm=record.llm, model=record.model, budget=record.budget, executor=record.executor, here=here
    )


def answers_folder(journal: Journal) -> Path | None:
    """Where answers are written by hand; None if the project does not say it any more."""
    try:
        settings = settings_of(config_of(journal), options_of(journal))
    except CginsError:
        return None
    return exchange_folder.folder_of(journal, settings)


def exit_code(ran: RunResult | None) -> int:
    """Of a command: 0 if all were accepted, 1 if one was not, 7 if one waits for answers, 130 after Ctrl-C.

    That nothing faster than an accepted kernel was found is no failure.
    """
    if ran is None:
        return 130
    states = {one.state for one in ran.results if not (one.target.improves and one.state == "failed")}
    if "waiting" in states:
        return EXIT_WAITING
    return 0 if states <= {"accepted"} else 1
