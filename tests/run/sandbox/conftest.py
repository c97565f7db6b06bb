"""Code that tries something, run in a sandbox and without one."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.run.sandbox.sandbox import Limits, Sandbox, Way, ways

LIMIT_S = 60.0
ROOMY = Limits(processes=600, file_bytes=1 << 20, open_files=256, scratch_bytes=4 << 20)

_HARNESS = """
import ctypes, errno, os, signal, socket, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)

def call(name, *arguments):
    result = getattr(libc, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

def tried(attempt):
    try:
        attempt()
        print("reached")
    except OSError as error:
        print("denied:", errno.errorcode.get(error.errno, error.errno))
    except MemoryError:
        print("denied: MemoryError")
"""

Trial = Callable[..., str]


def run(argv: Sequence[str], pass_fds: Sequence[int] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        pass_fds=pass_fds,
    )


def python(code: str) -> list[str]:
    """The command that runs some code; -S, since a plain start costs more than the sandbox."""
    return [sys.executable, "-I", "-S", "-c", code]


def script(*bodies: str, **values: object) -> list[str]:
    """The command of some attempts, each told in a line; `values` are names that the bodies can use."""
    code = "".join(f"{name} = {value!r}\n" for name, value in values.items()) + _HARNESS
    for body in bodies:
        code += "def attempt():\n" + textwrap.indent(textwrap.dedent(body), "    ") + "\ntried(attempt)\n"
    return python(code)


def made(**options: Any) -> Sandbox:
    """A sandbox, where one can be made."""
    sandbox = Sandbox(limits=ROOMY, devices=False, **options)
    if trouble := sandbox.available():
        pytest.skip(trouble)
    return sandbox


WAYS = ways()


# A way that is not here is no skipped test: which ones there are is a matter of the host.
@pytest.fixture(scope="session", params=[way for way, trouble in WAYS.items() if not trouble] or [None])
def way(request: pytest.FixtureRequest) -> Way:
    """Each way that this host has."""
    if request.param is None:
        pytest.skip(f"this host gives no sandbox: {WAYS}")
    name: Way = request.param
    return name


@pytest.fixture
def sandbox(way: Way, tmp_path: Path) -> Sandbox:
    """One that shows the test's own folder, but for what lies in `gold`."""
    return Sandbox(way=way, visible=(tmp_path,), hidden=(tmp_path / "gold",), limits=ROOMY, devices=False)


def _told(argv: Sequence[str]) -> str:
    ran = run(argv)
    return ran.stdout.strip() or f"ended with {ran.returncode}: {ran.stderr}"


@pytest.fixture
def fenced(sandbox: Sandbox) -> Trial:
    """Runs attempts in the sandbox: `reached` or `denied: ERRNO`, a line each."""
    return lambda *bodies, **values: _told(sandbox.wrap(script(*bodies, **values)))


@pytest.fixture
def free() -> Trial:
    """Runs attempts without a sandbox: what is denied inside must be possible, else its test shows nothing."""
    return lambda *bodies, **values: _told(script(*bodies, **values))
