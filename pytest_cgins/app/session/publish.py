"""`--cgins-pr`: proposals of a run become pull requests, each by a process of its own that alone uses the token.

A proposal whose base branch has moved is measured anew before that, by a process that does not have the token.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_cgins.core import logs
from pytest_cgins.core.errors import GitHubError, ProposalError
from pytest_cgins.core.secrets import without_secrets
from pytest_cgins.pull_request import credentials, remote
from pytest_cgins.pull_request.clone import Clone
from pytest_cgins.regenerate import proposal
from pytest_cgins.report.escape import visible

if TYPE_CHECKING:
    from pytest_cgins.regenerate.journal.journal import RunRecord
    from pytest_cgins.regenerate.run_status import RunResult

Choice = Literal["auto", "draft", "off"]
LIMIT_S = 1800.0
"""A process that is not done by then is ended: longer than its commands of git and its waits for the server may take."""
REBASE_LIMIT_S = 4000.0
"""Likewise, where kernels are measured: longer than the gate of `cgins proposal rebase` may take."""
REBASED = "rebased"
"""Folder beside that of the proposals, with what was measured anew of them under their names."""
LOOK_S = 0.5
"""How often it is looked what a process waits for."""
LIMIT_NBYTES = 2**20
"""More of its stderr is not read."""
ENDING_S = 10.0
"""For a process to tidy up once it is told to end."""
_BOOT = "import sys; from pytest_cgins.app.cli import main; sys.exit(main(sys.argv[1:]))"


def of_run(record: RunRecord, ran: RunResult, config: Path) -> Iterator[str]:
    """Do with the proposals of a run what it was begun with, and say what came of it, a line each.

    What has been opened by an earlier part of the run is left as it is.
    """
    # Where a faster kernel may still come, there is one pull request, with that one.
    open_ = {result.target.improves for result in ran.results if result.state in ("waiting", "stopped")}
    proposed = (result for result in ran.results if result.proposal)
    proposals = [ran.journal / one.proposal for one in proposed if one.target.name not in open_]
    yield from published(proposals, config, record.pull_requests)


def published(
    proposals: Sequence[Path], config: Path, choice: Choice, environment: Mapping[str, str] = os.environ
) -> Iterator[str]:
    """Open pull requests, and say what came of it, a line each.

    `auto` opens them as `pull_request` in `cgins.yaml` says, where there is a token and a remote on GitHub; `draft` opens
    drafts, and says why it cannot.
    """
    if choice == "off" or not proposals:
        return
    missing = obstacle(config.parent, environment)
    if missing:
        yield f"no pull request: {missing}" + (" (--cgins-pr=draft was given)" if choice == "draft" else "")
        return
    words = ["--config", str(config), "--json", *(["--draft"] if choice == "draft" else [])]
    for folder in proposals:
        yield from _opened(folder, config, environment, words)


def obstacle(folder: Path, environment: Mapping[str, str]) -> str:
    """Why no pull request can be opened from a folder; "" if one can."""
    try:
        credentials.token(environment)
        remote.require_known(remote.parse(Clone(folder).remote_url("origin")), environment)
    except GitHubError as error:
        return error.what
    return ""


def _opened(
    folder: Path, config: Path, environment: Mapping[str, str], words: Sequence[str]
) -> Iterator[str]:
    """Open one, measured anew first where the base branch has moved."""
    none = f"no pull request for {folder.name}: "
    # Whoever takes the folder of proposals for its contents is not to find one of them twice.
    again = folder.parent.with_name(REBASED) / folder.name
    try:
        # An earlier try may have left it, and its pull request has that evidence.
        known = again if _is_of(again, folder) else folder
        told = _open(known, environment, [*words, "--only-measured"])
        if told.state == "moved":
            why = _rebase(folder, again, told.tip, config, environment)
            if why:
                yield none + why
                return
            # On the tip of a moment ago: that it moved again is told in the pull request.
            told = _open(again, environment, words)
    except subprocess.TimeoutExpired as error:
        yield f"{none}it took more than {error.timeout:.0f} s and was ended"
        return
    except OSError as error:
        yield f"{none}{error}"
        return
    yield told.line if told.is_open else none + told.line
    yield from (f"note: {note}" for note in told.notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenResult:
    """What `cgins pull-request open` came to."""

    line: str
    """For people."""
    is_open: bool
    """Whether it ended well."""
    state: str = ""
    """What became of the proposal; "" after an error."""
    tip: str = ""
    """Commit of the base branch."""
    notes: tuple[str, ...] = ()
    """What was not done as wished."""


def _open(folder: Path, environment: Mapping[str, str], words: Sequence[str]) -> _OpenResult:
    done = _run(["pull-request", "open", "--proposal", str(folder), *words], environment, LIMIT_S)
    try:
        told = json.loads(done.stdout)
    except ValueError:
        return _OpenResult(line=_said(done), is_open=False)
    return _OpenResult(
        line=_line(told["line"]),
        is_open=done.returncode == 0,
        state=told["state"],
        tip=told.get("tip", ""),
        notes=tuple(_line(note) for note in told.get("notes", ())),
    )


def _rebase(folder: Path, again: Path, tip: str, config: Path, environment: Mapping[str, str]) -> str:
    """Have a proposal measured anew by a process without the token; why there is none on the tip, or ""."""
    if _is_of(again, folder) and proposal.read(again).proposal.base_commit == tip:
        return ""
    if again.is_dir() and not again.is_symlink():
        shutil.rmtree(again)
    words = ["proposal", "rebase", str(folder), "--onto", tip, "--output", str(again)]
    # Kernels run below it.
    fenced = without_secrets(environment)
    done = _run([*words, "--root", str(config.parent)], fenced, REBASE_LIMIT_S)
    return "" if done.returncode == 0 and again.is_dir() else _said(done)


def _is_of(again: Path, folder: Path) -> bool:
    """Whether a folder is whole, and the same proposal measured anew."""
    try:
        found, first = proposal.read(again).proposal, proposal.read(folder).proposal
    except (ProposalError, OSError):
        return False
    return (found.id, found.files) == (first.id, first.files)


def _run(
    words: Sequence[str], environment: Mapping[str, str], limit_s: float
) -> subprocess.CompletedProcess[str]:
    """Run `cgins` to its end, or end it and all that it started.

    Raises:
        TimeoutExpired: it took longer than `limit_s` seconds.
        OSError: it cannot be started.
    """
    # The package's own folder is not needed on the path: -I leaves out the project's, whose modules are not ours.
    command = [sys.executable, "-I", "-c", _BOOT, *words]
    ends = time.monotonic() + limit_s
    with tempfile.TemporaryFile("w+", errors="replace") as stderr:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True,
            env=dict(environment), start_new_session=True,
        )  # fmt: skip
        told = 0
        with process:
            try:
                while process.returncode is None:
                    try:
                        output, _ = process.communicate(timeout=LOOK_S)
                    except subprocess.TimeoutExpired:
                        if time.monotonic() >= ends:
                            raise subprocess.TimeoutExpired(command, limit_s) from None
                    errors = os.pread(stderr.fileno(), LIMIT_NBYTES, 0).decode(errors="replace")
                    whole = errors[: errors.rfind("\n") + 1]
                    # What it waits for is said while it does.
                    for line in _waits(whole[told:]):
                        logging.getLogger(logs.ROOT).warning("%s", line.removeprefix("cgins: "))
                    told = len(whole)
            except BaseException:
                # Also Ctrl-C, which a session of its own does not hear of.
                _end(process)
                raise
    for line in _waits(errors):
        errors = errors.replace(f"{line}\n", "")
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def _waits(errors: str) -> list[str]:
    return [
        line for line in errors.splitlines() if line.startswith(("cgins: waiting for ", "cgins: waited "))
    ]


def _end(process: subprocess.Popen[str]) -> None:
    """Have it tidy up, then kill what is left of its group: git below it has the token, too."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=ENDING_S)


def _said(done: subprocess.CompletedProcess[str]) -> str:
    """What a process said for people: a result it prints, an error it tells on stderr."""
    own = done.stdout if done.returncode in (0, 1) else done.stderr
    said = _line(own.strip() or done.stderr or done.stdout)
    return said.removeprefix("cgins: ") or f"exit status {done.returncode}"


def _line(text: str) -> str:
    return visible(" ".join(text.split()))
