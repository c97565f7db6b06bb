"""What of the machine is shown, decided before anything runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_cgins.run.sandbox import outside

from .conftest import made, python, run

SCRATCH = Path("/tmp")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder, not in a temporary one: scratch is elsewhere."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


def test_home_is_emptied_but_for_the_project(home: Path) -> None:
    """Of a home folder only what is asked for is shown; secrets in it are hidden by name also then."""
    (home / "project").mkdir()
    (home / ".ssh").mkdir()
    found = outside.paths(SCRATCH, [home / "project"], [])
    assert str(home / "project") in found["show"]
    assert not any(path == str(home / ".ssh") for path in found["show"])
    found = outside.paths(SCRATCH, [home], [])
    assert str(home) in found["show"]
    assert str(home / ".ssh") in found["hide"]


def test_bytecode_is_shown_where_it_is(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of PYTHONPYCACHEPREFIX is read in the sandbox as well: all that is imported would be compiled anew."""
    (home / "bytecode").mkdir()
    monkeypatch.setattr(sys, "pycache_prefix", str(home / "bytecode"))
    assert str(home / "bytecode") in outside.paths(SCRATCH, [], [])["show"]
    monkeypatch.setattr(sys, "pycache_prefix", None)
    assert str(home / "bytecode") not in outside.paths(SCRATCH, [], [])["show"]


@pytest.mark.parametrize("where", ["/", "/usr", "/usr/sbin", "/dev", sys.prefix, "relative", "", None])
def test_homes_that_cannot_be_emptied(where: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home that the system or Python needs is left as it is, and a user may have none at all."""
    monkeypatch.setattr(outside.pwd, "getpwuid", {}.__getitem__)
    monkeypatch.delenv("HOME")
    without = outside.paths(SCRATCH, [], [])["empty"]
    if where is not None:
        monkeypatch.setenv("HOME", where)
    assert outside.paths(SCRATCH, [], [])["empty"] == without


def test_sandbox_of_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """With HOME=/, as a container gives to a user without a name, a sandbox can be made."""
    sandbox = made()
    monkeypatch.setenv("HOME", "/")
    assert run(sandbox.wrap(["echo", "here"])).stdout == "here\n"


def test_scratch_is_not_shown_over(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that lies in /tmp has Python import from there, and that does not put the host's /tmp over scratch."""
    monkeypatch.syspath_prepend(str(SCRATCH))
    assert str(SCRATCH) not in outside.paths(SCRATCH, [], [])["show"]


def test_both_homes_are_emptied(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where HOME is set to another folder, the user's own is emptied as well."""
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setattr(outside, "_EMPTY", ())
    monkeypatch.setattr(outside.pwd, "getpwuid", lambda _: SimpleNamespace(pw_dir=str(own)))
    assert {str(home), str(own)} <= set(outside.paths(SCRATCH / "none", [], [])["empty"])


def test_files_of_root_alone(tmp_path: Path) -> None:
    """Of a folder, what not all may read is found; not what lies in such a folder, nor links."""
    for name, mode in (("open", 0o644), ("group", 0o640), ("folder/own", 0o600), ("shut/own", 0o600)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch(mode)
        (tmp_path / name).chmod(mode)
    (tmp_path / "shut").chmod(0o700)
    (tmp_path / "link").symlink_to("group")
    found = outside.closed_to_others(tmp_path)
    assert sorted(found) == [tmp_path / "folder" / "own", tmp_path / "group", tmp_path / "shut"]


@pytest.mark.skipif(os.geteuid() != 0, reason="for root")
def test_root_does_not_see_passwords() -> None:
    """Nothing of /etc that only root may read can be read in root's sandbox."""
    sandbox = made()
    secret = [
        str(path) for path in outside.closed_to_others(Path("/etc")) if path.is_file() and path.read_bytes()
    ]
    if not secret:
        pytest.skip("all may read all of /etc")
    ran = run(sandbox.wrap(["cat", "--", *secret]))
    assert ran.stdout == ""


def test_hidden_wins(home: Path) -> None:
    """What lies in a hidden folder is not shown, whoever asks for it."""
    (home / "project" / "gold").mkdir(parents=True)
    found = outside.paths(SCRATCH, [home / "project" / "gold", home / "project"], [home / "project" / "gold"])
    assert str(home / "project") in found["show"]
    assert str(home / "project" / "gold") in found["hide"]
    found = outside.paths(SCRATCH, [home / "project"], [home / "project"])
    assert not any(path.startswith(str(home / "project")) for path in found["show"])


def test_links_lead_where_they_lead(home: Path) -> None:
    """A path through symbolic links in an emptied folder can be followed: each link is made again."""
    (home / "versions" / "3.1").mkdir(parents=True)
    (home / "current").symlink_to("versions/3.1")
    (home / "python").symlink_to(home / "current")
    found = outside.paths(SCRATCH, [home / "python"], [])
    assert str(home / "versions" / "3.1") in found["show"]
    assert {str(home / "python"), str(home / "current")} <= set(found["link"])


def test_a_loop_of_links_ends(home: Path) -> None:
    """Links that lead to themselves are no reason to hang."""
    (home / "a").symlink_to("b")
    (home / "b").symlink_to("a")
    assert str(home / "a") not in outside.paths(SCRATCH, [home / "a"], [])["show"]


def test_files_through_links_are_seen(tmp_path: Path) -> None:
    """The same in a sandbox: a file is read by the path that its user knows."""
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "file").write_text("found")
    (tmp_path / "near").symlink_to("far")
    sandbox = made(visible=(tmp_path / "near",))
    assert run(sandbox.wrap(["cat", str(tmp_path / "near" / "file")])).stdout == "found"


def test_repository_of_a_worktree(home: Path) -> None:
    """A worktree's `.git` names the repository, whose settings may hold a token."""
    repository, tree = home / "repository", home / "tree"
    subprocess.run(["git", "init", "-q", repository], check=True)
    settings = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", *settings, "-C", repository, "commit", "-qm", "x", "--allow-empty"], check=True)
    subprocess.run(["git", "-C", repository, "worktree", "add", "-q", tree], check=True)
    found = outside.paths(SCRATCH, [tree, repository], [])
    assert {str(tree / ".git"), str(repository / ".git")} <= set(found["hide"])


def test_secrets_of_other_projects(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is shown because Python imports from it shows no repository either."""
    (home / "other" / ".git").mkdir(parents=True)
    (home / "other" / "src").mkdir()
    monkeypatch.syspath_prepend(home / "other" / "src")
    monkeypatch.syspath_prepend(home / "other")
    found = outside.paths(SCRATCH, [], [])
    assert str(home / "other") in found["show"]
    assert str(home / "other" / ".git") in found["hide"]


def test_runner_secrets(home: Path) -> None:
    """A self-hosted runner keeps its keys above the projects that it checks out."""
    work = home / "runner" / "_work" / "project"
    work.mkdir(parents=True)
    for name in (".runner", ".credentials"):
        (home / "runner" / name).write_text("{}")
    found = outside.secrets([home], [work])
    assert {home / "runner" / ".runner", home / "runner" / ".credentials"} <= set(found)


def test_variables_that_are_kept() -> None:
    """What compilers, torch and CUDA read is kept; everything else goes, and so does what looks like a secret."""
    kept = {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "0", "OMP_NUM_THREADS": "1", "LC_ALL": "C", "CXX": "g++"}
    kept |= dict.fromkeys(("CUBLASLT_LOG_LEVEL", "CUDNN_HOME", "CUFFT_X", "NCCL_DEBUG", "MAX_JOBS"), "1")
    kept |= {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "C_INCLUDE_PATH": "/", "CPLUS_INCLUDE_PATH": "/"}
    # Without them a user who is in no list has no name, and inductor fails.
    kept |= {"USER": "me", "LOGNAME": "me"}
    gone = {"GITHUB_TOKEN": "x", "CGINS_API_KEY": "x", "SESSION": "x", "TORCH_HUB_TOKEN": "x", "HOME": "/"}
    assert outside.unset({**kept, **gone}) == sorted(gone)
    assert outside.variables(SCRATCH)["TRITON_CACHE_DIR"] == "/tmp/triton"


def test_device_nodes() -> None:
    """Only devices, and of GPUs only where they are asked for."""
    plain = outside.devices(gpu=False)
    assert "/dev/null" in plain
    assert not any("nvidia" in path for path in plain)
    assert all(Path(path).is_char_device() for path in outside.devices(gpu=True))


def patched(command: list[str], patch: str) -> list[str]:
    """The command with a launcher that first runs some code, to be on a kernel that is less able."""
    boot = (
        f"import sys; sys.path.append({str(Path(outside.__file__).parents[1])!r})\n"
        f"from sandbox import enter, system\n{patch}\nenter.main()\n"
    )
    return [boot if "sandbox.enter" in word else word for word in command]


@pytest.mark.skipif(os.geteuid() != 0, reason="for administrators")
def test_without_user_namespaces(tmp_path: Path) -> None:
    """An administrator's sandbox is as closed without one, and leaves the host's settings alone."""
    sandbox = made(way="namespaces", visible=(tmp_path,))
    settings = [Path("/proc/sys/user/max_user_namespaces"), Path("/proc/sys/kernel/pid_max")]
    before = [setting.read_text() for setting in settings]
    script = (
        "cat /proc/self/status; readlink /proc/self/ns/user; touch /etc/x; : >> /proc/sys/kernel/core_pattern"
    )
    ran = run(patched(sandbox.wrap(["sh", "-c", script]), "system.CLONE_NEWUSER = 1"))
    lines = ran.stdout.split("\n")
    assert str(Path("/proc/self/ns/user").readlink()) in lines
    assert [line.split()[1] for line in lines if line.startswith("Cap")] == ["0" * 16] * 5
    assert "NoNewPrivs:\t1" in lines
    assert ran.stderr.count("Read-only file system") == 2, ran.stderr
    assert [setting.read_text() for setting in settings] == before


def test_without_mount_setattr(tmp_path: Path) -> None:
    """On kernels before 5.12 each mount is made read-only by itself, whatever its name."""
    sandbox = made(way="namespaces", visible=(tmp_path,))
    odd = tmp_path / "a folder\\040"
    odd.mkdir()
    sandbox = sandbox.around(visible=(), hidden=(odd,))
    code = (
        "import os, sys\n"
        "for path in sys.argv[1:]:\n"
        "    try: os.open(path + '/x', os.O_CREAT | os.O_WRONLY); print('written')\n"
        "    except OSError as error: print(error.strerror)\n"
    )
    command = sandbox.wrap([*python(code), "/etc", str(tmp_path), str(odd), "/sys/fs/cgroup", "/tmp"])
    patch = "def absent(*_): raise OSError(38, 'Function not implemented')\nsystem.mount_setattr = absent\n"
    ran = run(patched(command, patch))
    assert ran.stdout.splitlines() == ["Read-only file system"] * 4 + ["written"], ran.stderr
