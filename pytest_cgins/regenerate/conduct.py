"""How a run is conducted, whether pytest or a command began it: who is asked, in which sandbox, and what is shown."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins import config as configuration
from pytest_cgins.calibration import Calibrations
from pytest_cgins.config import Config
from pytest_cgins.config.llm import LlmSettings
from pytest_cgins.config.llm_override import overridden
from pytest_cgins.errors import ConfigError, ProviderError
from pytest_cgins.execute import environment
from pytest_cgins.execute.sandbox.fence import Sandbox
from pytest_cgins.execute.sandbox.outside import has_gpu
from pytest_cgins.regenerate.journal import Journal
from pytest_cgins.regenerate.shown import Shown
from pytest_cgins.timing_stage import TimingOptions

if TYPE_CHECKING:
    from pytest_cgins.regenerate.run import Ran

EXIT_WAITING = 7
"""Exit code when a run stopped because its answers come by hand and are not there yet."""

UNFENCED = "cgins: no sandbox: kernels that a model wrote run with all that you may do (--cgins-sandbox=off)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line says of a run."""

    llm: str = ""
    """`--cgins-llm`."""
    model: str = ""
    """`--cgins-model`."""
    runs: str = ""
    """`--cgins-runs`."""
    here: Path = field(default_factory=Path.cwd)
    """Folder in which it was given: its relative paths start there."""


def settings_of(config: Config, asked: Asked) -> LlmSettings:
    """Who is asked.

    Raises:
        ConfigError: nobody is named, or what is said does not go together.
        ProviderError: the variable with the provider's key is not set.
    """
    found = overridden(config.llm, llm=asked.llm, model=asked.model, root=config.root, here=asked.here)
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


def worked(
    journal: Journal,
    config: Config,
    settings: LlmSettings,
    *,
    sandbox: Sandbox | None,
    workers: Mapping[str, str] | None = None,
) -> Ran | None:
    """Do what a journal says, and show it; None after Ctrl-C.

    Args:
        journal: held by this process.
        config: the project's file.
        settings: who is asked.
        sandbox: around candidates.
        workers: added to the environment of workers.

    Raises:
        CginsError: the project is not what it was, or nobody can be asked.
    """
    from pytest_cgins.regenerate.run import Conditions, Run

    if environment.has_secrets():
        environment.shield()
    shown = Shown(journal)
    conditions = Conditions(
        sandbox=sandbox,
        environment=workers or {},
        noise=TimingOptions(noise=Calibrations().noise),
        on_event=shown.event,
    )
    try:
        with shown:
            ran = Run(journal, config, settings, conditions).work()
    except KeyboardInterrupt:
        shown.interrupted()
        return None
    shown.summary(ran)
    return ran


def config_of(journal: Journal) -> Config:
    """The project's file that a journal is about.

    Raises:
        ConfigError: it is not there any more, or wrong.
    """
    return configuration.load(
        Path(os.path.normpath(journal.folder / journal.record.config)), require_sources=False
    )


def exit_code(ran: Ran | None) -> int:
    """Of a command: 0 if all were accepted, 1 if one was not, 7 if one waits for answers, 130 after Ctrl-C."""
    if ran is None:
        return 130
    states = {result.state for result in ran.results}
    if "waiting" in states:
        return EXIT_WAITING
    return 0 if states <= {"accepted"} else 1


def tell(line: str) -> None:
    """A line for the user, beside what a command prints for others."""
    print(f"cgins: {line}", file=sys.stderr, flush=True)
