"""Running other programs."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_cgins.doctor import tools

if TYPE_CHECKING:
    from conftest import FakeTool


def test_output_and_status(tool: FakeTool) -> None:
    """Both come back, whatever the status is, and stderr with stdout."""
    ran = tools.run([tool("fails", script="sys.stderr.write('one\\n'); print('two\\n'); sys.exit(3)")])
    assert (ran.status, ran.last_line) == (3, "two")
    assert "one" in ran.output
    assert tools.run([tool("silent")]).last_line == "exit status 0"


def test_a_tool_that_hangs_is_killed_with_its_children(tool: FakeTool, tmp_path: Path) -> None:
    """At the limit the whole group ends, what was printed is kept, and the trouble is told."""
    script = f"pid = os.fork()\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(pid or os.getpid()))\nprint('hm', flush=True)\ntime.sleep(60)"
    started = time.monotonic()
    ran = tools.run([tool("hangs", script=script)], limit_s=1.0)
    assert time.monotonic() - started < 10
    assert (ran.status, ran.trouble) == (None, "hangs did not end in time and was killed")
    assert ran.output.startswith("hm")
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            break
        if state == "Z":
            break
        time.sleep(0.05)
    else:
        os.kill(pid, signal.SIGKILL)
        pytest.fail("a child of the tool lived on")


def test_endless_output_is_bounded(tool: FakeTool) -> None:
    """A tool that prints for ever is ended by its amount, long before its time."""
    started = time.monotonic()
    ran = tools.run([tool("yes", script="while True: sys.stdout.write('y\\n' * 5000)")], limit_s=60)
    assert time.monotonic() - started < 20
    assert ran.trouble == "yes printed more than 256 KiB and was killed"
    assert len(ran.output) < 2 * tools.OUTPUT_NBYTES


def test_binary_garbage_is_text(tool: FakeTool) -> None:
    """Bytes that are no UTF-8 do no harm."""
    ran = tools.run([tool("noise", script="sys.stdout.buffer.write(bytes(range(256)) * 3)")])
    assert (ran.status, ran.trouble) == (0, "")


@pytest.mark.parametrize("name", ["absent", "not-a-program"])
def test_what_cannot_be_started(tmp_path: Path, name: str) -> None:
    """A missing file, or one that the system cannot run, is a trouble and no exception."""
    (tmp_path / "not-a-program").write_bytes(b"\x00\x01")
    (tmp_path / "not-a-program").chmod(0o755)
    ran = tools.run([str(tmp_path / name)])
    assert ran.status is None
    assert "cannot be run" in ran.last_line


def test_secrets_do_not_reach_tools(tool: FakeTool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that sound like secrets are taken out of a tool's environment; others are kept."""
    for name in ("OPENAI_API_KEY", "GH_TOKEN", "MY_SECRET", "DB_PASSWORD", "AWS_CREDENTIALS"):
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("CUDA_HOME", "/cuda")
    ran = tools.run([tool("env", script="print(dict(os.environ))")])
    assert "hunter2" not in ran.output
    assert "'CUDA_HOME': '/cuda'" in ran.output


def test_probe_takes_the_last_object(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Warnings before and after a probe's answer are passed over; without an answer there is None."""
    (tmp_path / "chatty.py").write_text("print('{broken')\nprint('[1]')\nprint('{\"a\": 1}')\nprint('bye')\n")
    (tmp_path / "mute.py").write_text("raise SystemExit('no such library')\n")
    monkeypatch.setattr(tools, "PROBES", tmp_path)
    assert tools.probe("chatty", limit_s=20)[0] == {"a": 1}
    answer, ran = tools.probe("mute", limit_s=20)
    assert (answer, ran.last_line) == (None, "no such library")


def test_find_prefers_path(tool: FakeTool, tmp_path: Path) -> None:
    """PATH first, then the folders in their order, else nothing."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "ncu").write_text("")
    assert tools.find("ncu", [other]) == ""
    (other / "ncu").chmod(0o755)
    assert tools.find("ncu", [tmp_path, other]) == str(other / "ncu")
    assert tools.find("ncu", [other]) != tool("ncu") == tools.find("ncu", [other])
