"""What a kernel tries from within the sandbox, and does not get."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import uuid
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest

import pytest_cgins
from pytest_cgins.run.sandbox import landlock, mounts, outside
from pytest_cgins.run.sandbox.sandbox import Sandbox
from pytest_cgins.run.sandbox.seccomp import ABSENT, MACHINES, REFUSED

from .conftest import Trial, python, run

SECRET = "a-token-that-nobody-gets"


@pytest.fixture
def victim(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A process of this user outside of the sandbox, with a secret in its environment and arguments."""
    command = python("import sys, time; print(flush=True); time.sleep(100)")
    with subprocess.Popen([*command, SECRET], env={"PASSPHRASE": SECRET}, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


# ---- network


def test_tcp_port_of_the_host(fenced: Trial, free: Trial) -> None:
    """A service that listens on the host's loopback cannot be reached."""
    body = "socket.create_connection(('127.0.0.1', port), timeout=20)"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert free(body, port=port) == "reached"
        assert fenced(body, port=port) == "denied: ENOENT"


def test_udp(fenced: Trial, free: Trial) -> None:
    """No datagram arrives on the host or leaves for elsewhere, also where no filter can see its address."""
    body = "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendmsg([b'secret'], [], 0, address)"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.setblocking(False)
        fenced(body, address=server.getsockname())
        with pytest.raises(BlockingIOError):
            server.recv(16)
        assert free(body, address=server.getsockname()) == "reached"
        assert server.recv(16) == b"secret"
    # An address for documentation.
    assert fenced(body, address=("192.0.2.1", 9)) == "denied: ENETUNREACH"


def test_ports_of_the_host_are_not_listed(fenced: Trial, free: Trial) -> None:
    """The sandbox has a network of its own, in which nothing listens."""
    body = "if port not in open('/proc/self/net/tcp').read(): raise OSError(errno.ENOENT, '')"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = f":{server.getsockname()[1]:04X} "
        assert free(body, port=port) == "reached"
        assert fenced(body, port=port) == "denied: ENOENT"


def test_abstract_socket_of_the_host(fenced: Trial, free: Trial) -> None:
    """An abstract Unix socket cannot be connected to, and its name is free in the sandbox."""
    name = f"\0cgins-{uuid.uuid4().hex}"
    bodies = "socket.socket(socket.AF_UNIX).connect(name)", "socket.socket(socket.AF_UNIX).bind(name)"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        assert free(*bodies, name=name) == "reached\ndenied: EADDRINUSE"
        assert fenced(*bodies, name=name) == "denied: ENOENT\nreached"


def test_unix_socket_in_a_visible_folder(fenced: Trial, free: Trial, tmp_path: Path) -> None:
    """A service's socket in the file system is seen, and not connected to."""
    name = str(tmp_path / "s")
    body = "assert os.path.exists(name); socket.socket(socket.AF_UNIX).connect(name)"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        assert free(body, name=name) == "reached"
        assert fenced(body, name=name) == "denied: ENOENT"


def test_other_sockets(fenced: Trial) -> None:
    """Kinds of sockets that a network namespace does not hold back, or that address what no filter can see."""
    vsock, crypto, raw = (f"socket.socket({family}, socket.SOCK_STREAM)" for family in (40, 38, 17))
    datagram = "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)"
    pair = "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)"
    assert fenced(vsock, crypto, raw).splitlines() == ["denied: EAFNOSUPPORT"] * 3
    assert fenced(datagram, pair).splitlines() == ["denied: EPERM"] * 2


# ---- other processes


def test_proc_of_another_process(fenced: Trial, free: Trial, victim: int) -> None:
    """Nothing of a process outside can be read, for there is no such process."""
    names = ("environ", "cmdline", "mem", "maps", "fd/0", "root/etc", "cwd")
    bodies = [f"os.close(os.open(f'/proc/{{pid}}/{name}', os.O_RDONLY))" for name in names]
    assert free(*bodies, pid=victim).splitlines() == ["reached"] * 7
    for pid in (victim, os.getpid()):
        assert fenced(*bodies, pid=pid).splitlines() == ["denied: ENOENT"] * 7


def test_signal_to_the_parent(fenced: Trial, free: Trial, victim: int) -> None:
    """Processes outside cannot be signalled."""
    bodies = f"os.kill({victim}, 0)", f"os.kill({os.getpid()}, 0)"
    assert free(*bodies) == "reached\nreached"
    assert fenced(*bodies) == "denied: ESRCH\ndenied: ESRCH"


def test_first_process_of_the_sandbox(fenced: Trial) -> None:
    """Also the one that looks after the worker cannot be looked into."""
    names = ("mem", "environ", "fd/2", "root/etc", "cwd")
    bodies = [f"os.close(os.open('/proc/1/{name}', os.O_RDONLY))" for name in names]
    assert fenced(*bodies).splitlines() == ["denied: EACCES"] * 5


def test_secrets_of_the_environment(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the worker nor what stands around it has variables of this process that are none of its business."""
    for name in ("GITHUB_TOKEN", "CGINS_API_KEY", "DATABASE", "TORCH_SECRET"):
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    ran = run(sandbox.wrap(["sh", "-c", "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null"]))
    assert "OMP_NUM_THREADS=3" in ran.stdout
    assert SECRET not in ran.stdout


# ---- files


def test_write_to_the_system(fenced: Trial) -> None:
    """Nothing can be written to the host's folders, nor to the empty ones that stand for them."""
    folders = ("/", "/etc", "/usr", "/var", "/sys", "/dev", "/home", "/run", "/var/tmp", "/sys/fs/cgroup")
    bodies = [f"os.open('{folder}/planted', os.O_CREAT | os.O_WRONLY)" for folder in folders]
    assert fenced(*bodies).splitlines() == ["denied: EROFS"] * len(folders)


def test_write_to_the_project(fenced: Trial, free: Trial, tmp_path: Path) -> None:
    """What is shown of the project is read-only: contents, names, modes, times."""
    (tmp_path / "kernel.cpp").write_text("int x;")
    bodies = (
        "os.open(path, os.O_WRONLY)",
        "os.open(path + '.new', os.O_WRONLY | os.O_CREAT)",
        "os.chmod(path, 0o777)",
        "os.utime(path)",
        "os.rename(path, path + '.old')",
    )
    path = str(tmp_path / "kernel.cpp")
    assert fenced(*bodies, path=path).splitlines() == ["denied: EROFS"] * len(bodies)
    assert free(*bodies, path=path).splitlines() == ["reached"] * len(bodies)


def test_write_to_the_package(fenced: Trial) -> None:
    """A kernel cannot change the gate."""
    bodies = "os.open(path, os.O_WRONLY)", "os.open(path, os.O_RDONLY)"
    assert fenced(*bodies, path=str(Path(pytest_cgins.__file__))) == "denied: EROFS\nreached"


def test_write_to_kernel_settings(fenced: Trial) -> None:
    """The files by which root rules a host are read-only to root as well."""
    writable = [name for name in mounts.settings("/proc") if Path("/proc", name).is_file()]
    names = ["sys/kernel/core_pattern", "sys/kernel/pid_max", "irq/default_smp_affinity", *writable]
    names = [name for name in names if Path("/proc", name).exists()]
    bodies = [f"os.open('/proc/{name}', os.O_WRONLY)" for name in names]
    assert fenced(*bodies).splitlines() == ["denied: EROFS"] * len(names)


def test_threads_get_names_and_no_rights(fenced: Trial) -> None:
    """CUDA starts only where it can name its threads in /proc; users are not mapped there any more."""
    bodies = (
        "open(f'/proc/self/task/{threading.get_native_id()}/comm', 'w').write('cuda')",
        "os.write(os.open('/proc/self/uid_map', os.O_WRONLY), b'0 0 1')",
    )
    named, mapped = fenced(*bodies).splitlines()
    assert named == "reached"
    assert mapped.startswith("denied: ")


def test_home_is_empty(fenced: Trial) -> None:
    """The user's home shows nothing but what leads to Python's own files; HOME is another folder."""
    home = Path(os.path.realpath(Path.home()))
    found = outside.paths(Path("/tmp"), [], [])
    needed = {
        Path(path).relative_to(home).parts[0]
        for path in found["show"] + found["link"]
        if path.startswith(f"{home}/")
    }
    if {entry.name for entry in home.iterdir()} <= needed:
        pytest.skip("this user's home has nothing else")
    bodies = (
        "if set(os.listdir(home)) <= needed: raise OSError(errno.ENOENT, '')",
        "os.open(home + '/x', os.O_CREAT | os.O_WRONLY)",
        "assert os.environ['HOME'] != home; open(os.environ['HOME'] + '/x', 'w')",
    )
    inside = fenced(*bodies, home=str(home), needed=needed)
    assert inside.splitlines() == ["denied: ENOENT", "denied: EROFS", "reached"]


def test_hidden_files(fenced: Trial, free: Trial, tmp_path: Path) -> None:
    """A folder that is to be hidden is there and empty; repositories and files of variables are hidden unasked."""
    for name in ("gold/blob", ".git/config", ".env"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(SECRET)
    (tmp_path / "link").symlink_to("gold")
    bodies = [
        f"if not open(folder + '/{name}').read(): raise OSError(errno.ENODATA, '')"
        for name in ("gold/blob", "link/blob", ".git/config", ".env")
    ]
    assert free(*bodies, folder=str(tmp_path)).splitlines() == ["reached"] * 4
    denied = fenced(*bodies, folder=str(tmp_path)).splitlines()
    assert denied == ["denied: ENOENT"] * 3 + ["denied: ENODATA"]


def test_devices(fenced: Trial) -> None:
    """/dev has what every program needs, and no disk, no memory, no terminal."""
    body = """
    found = {name for name in os.listdir('/dev') if not os.path.islink('/dev/' + name)}
    assert found - {'pts', 'console', 'tty'} == {'null', 'zero', 'full', 'random', 'urandom', 'shm'}, found
    """
    assert fenced(body) == "reached"


def test_no_folder_is_left_open(sandbox: Sandbox) -> None:
    """No descriptor leads out: a process has its standard three and what its parent passed on."""
    code = "import os; print(sorted(int(f) for f in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + f)))"
    read, write = os.pipe()
    with os.fdopen(read), os.fdopen(write):
        ran = run(sandbox.wrap(python(code)), pass_fds=[write])
    assert ran.stdout.strip() == str([0, 1, 2, write])


# ---- ways out


def test_ways_out(fenced: Trial) -> None:
    """What leads out of a sandbox, or into other processes, is refused."""
    column = list(MACHINES).index(os.uname().machine)
    clone, readv, keyctl = (56, 220)[column], REFUSED["process_vm_readv"][column], REFUSED["keyctl"][column]
    bodies = (
        "os.chroot('/tmp')",
        "call('mount', b'none', b'/tmp', b'tmpfs', 0, None)",
        "call('mount', b'none', b'/', None, 32 | 4096, None)",
        "call('umount2', b'/home', 2)",
        "call('setns', os.open('/proc/self/ns/mnt', os.O_RDONLY), 0)",
        "call('unshare', 0x10000000)",
        "call('unshare', 0x00020000)",
        f"call('syscall', {clone}, 0x10000000 | 17, 0, 0, 0, 0)",
        "call('ptrace', 0, 0, 0, 0)",
        f"call('syscall', {readv}, os.getpid(), 0, 0, 0, 0, 0)",
        f"call('syscall', {keyctl}, 0, -3, 0)",
        "os.mknod('/tmp/disk', 0o60666, os.makedev(8, 0))",
    )
    assert fenced(*bodies).splitlines() == ["denied: EPERM"] * len(bodies)


def test_user_namespaces_are_used_up(sandbox: Sandbox) -> None:
    """Besides the filter, the kernel's own limit allows no further user namespace."""
    if sandbox.way == "bubblewrap":
        pytest.skip("only our own launcher sets the limit")
    ran = run(sandbox.wrap(["cat", "/proc/sys/user/max_user_namespaces"]))
    assert ran.stdout.strip() == "0"
    assert int(Path("/proc/sys/user/max_user_namespaces").read_text()) > 0


def test_refused_calls(fenced: Trial) -> None:
    """Each call of the list is refused before its arguments are looked at."""
    column = list(MACHINES).index(os.uname().machine)
    numbers = [row[column] for row in REFUSED.values() if row[column] is not None]
    body = """
    for number in numbers:
        ctypes.set_errno(0)
        result = libc.syscall(number, *[ctypes.c_long(-1)] * 6)
        assert (result, ctypes.get_errno()) == (-1, errno.EPERM), (number, ctypes.get_errno())
    for number in absent:
        result = libc.syscall(number, *[ctypes.c_long(-1)] * 6)
        assert (result, ctypes.get_errno()) == (-1, errno.ENOSYS), (number, ctypes.get_errno())
    """
    absent = [row[column] for row in ABSENT.values()]
    assert fenced(body, numbers=numbers, absent=absent) == "reached"


def test_second_fence(fenced: Trial, free: Trial) -> None:
    """Where the kernel has Landlock, it holds whatever the mounts do: it also forbids to listen."""
    if landlock.version() < 4:
        pytest.skip("Landlock of this kernel does not know TCP")
    body = "socket.socket().bind(('', 0))"
    assert free(body) == "reached"
    assert fenced(body) == "denied: EACCES"


def test_no_privileges(sandbox: Sandbox) -> None:
    """Also root has no capability, and gets none by a set-user-id program."""
    ran = run(sandbox.wrap(["cat", "/proc/self/status"]))
    fields = dict(line.split(":", 1) for line in ran.stdout.splitlines())
    assert {int(fields[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert fields["NoNewPrivs"].strip() == "1"
    assert fields["Seccomp"].strip() == "2"


# ---- memory of others


def test_shared_memory_of_the_host(fenced: Trial, free: Trial) -> None:
    """Neither POSIX nor SysV shared memory of the host is there."""
    memory = SharedMemory(create=True, size=16)
    try:
        body = "os.stat('/dev/shm/' + name)"
        assert free(body, name=memory.name) == "reached"
        assert fenced(body, name=memory.name) == "denied: ENOENT"
    finally:
        memory.close()
        memory.unlink()


def test_sysv_ipc_of_the_host(fenced: Trial, free: Trial) -> None:
    """Segments by key are those of the sandbox alone."""
    import ctypes

    libc = ctypes.CDLL(None)
    key = uuid.uuid4().int & 0x7FFFFFFF
    segment = libc.shmget(key, 4096, 0o1600)
    assert segment >= 0
    try:
        assert free("call('shmget', key, 4096, 0)", key=key) == "reached"
        assert fenced("call('shmget', key, 4096, 0)", key=key) == "denied: ENOENT"
    finally:
        libc.shmctl(segment, 0, None)


# ---- native code


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_static_initialiser(sandbox: Sandbox, victim: int, tmp_path: Path) -> None:
    """Code that runs while a library is loaded, before any check of ours, finds the fence closed, too."""
    (tmp_path / "gold").mkdir()
    (tmp_path / "gold" / "blob").write_text(SECRET)
    source = tmp_path / "evil.cpp"
    source.write_text(_EVIL)
    subprocess.run(["g++", "-shared", "-fPIC", "-o", tmp_path / "evil.so", source], check=True)
    arguments = [str(tmp_path / "evil.so"), str(victim), str(tmp_path / "gold" / "blob"), str(source)]
    code = "import ctypes, os, sys; os.environ['CGINS_T'] = ' '.join(sys.argv[2:]); ctypes.CDLL(sys.argv[1])"
    inside = run(sandbox.wrap([*python(code), *arguments]))
    assert inside.stdout.split() == ["environ:0", "gold:0", "source:0", "ptrace:0", "kill:0"], inside.stderr
    outside = run([*python(code), *arguments])
    assert outside.stdout.split()[:3] == ["environ:1", "gold:1", "source:1"]


_EVIL = r"""
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <sstream>
#include <sys/ptrace.h>
static int run = [] {
    int pid;
    std::string gold, source;
    std::istringstream(getenv("CGINS_T")) >> pid >> gold >> source;
    bool environ_read = bool(std::ifstream("/proc/" + std::to_string(pid) + "/environ"));
    bool gold_read = bool(std::ifstream(gold));
    bool written = bool(std::ofstream(source, std::ios::app));
    bool traced = ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0;
    bool signalled = kill(pid, 0) == 0;
    printf("environ:%d gold:%d source:%d ptrace:%d kill:%d\n", environ_read, gold_read, written, traced, signalled);
    fflush(stdout);
    return 0;
}();
"""
