"""`--cgins-sandbox`: whether the run's workers are fenced in, and what does not go with it."""

from __future__ import annotations

import pytest

from pytest_cgins.core.errors import SandboxUnavailable
from pytest_cgins.run.sandbox.fence import Sandbox
from pytest_cgins.run.sandbox.outside import has_gpu


def sandbox(config: pytest.Config) -> Sandbox | None:
    """The fence around workers that run kernels, and around compilers; None where there is none.

    `auto` is for kernels that a model wrote in this run. What a gate finds in `cgins.yaml` was committed by
    people, who run it outside of the gate as well.

    Raises:
        pytest.UsageError: it is asked for, and this host cannot, or another option runs kernels outside of it.
    """
    if config.getoption("--cgins-sandbox") != "on":
        return None
    if config.getoption("--cgins-isolation") == "none" and not config.getoption("--cgins-compile-only"):
        raise pytest.UsageError(
            "--cgins-sandbox=on and --cgins-isolation=none: pytest's own process cannot be fenced in\n"
            "→ leave one of them out"
        )
    made = Sandbox(devices=has_gpu())
    try:
        made.require()
    except SandboxUnavailable as error:
        raise pytest.UsageError(str(error)) from error
    return made
