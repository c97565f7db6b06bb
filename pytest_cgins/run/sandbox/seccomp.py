"""System calls that are refused to a worker: what may lead out of a sandbox, or far into the kernel."""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from . import system

_SET_MODE_FILTER, _ALL_THREADS = 1, 1
_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_AT_LEAST, _JUMP_IF_ANY, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_X32 = 0x40000000

MACHINES = {"x86_64": (0xC000003E, 317), "aarch64": (0xC00000B7, 277)}
"""Machine → (AUDIT_ARCH_…, number of seccomp)."""

REFUSED: dict[str, tuple[int | None, int | None]] = {
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "kcmp": (312, 272), "pidfd_getfd": (438, 438),
    # what is mounted, and which namespaces one is in
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "open_tree_attr": (467, 467), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "setns": (308, 268), "unshare": (272, 97),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "fanotify_init": (300, 262),
    # keys, and parts of the kernel that many exploits began in
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "bpf": (321, 280),
    "userfaultfd": (323, 282), "perf_event_open": (298, 241), "modify_ldt": (154, None),
    # the host itself
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "reboot": (169, 142), "swapon": (167, 224),
    "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "syslog": (103, 116), "iopl": (172, None), "ioperm": (173, None), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    "sethostname": (170, 161), "setdomainname": (171, 162), "vhangup": (153, 58),
}  # fmt: skip
"""Call → its number on (x86_64, aarch64), refused with EPERM."""

ABSENT: dict[str, tuple[int, int]] = {
    "clone3": (435, 435), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "memfd_secret": (447, 447),
}  # fmt: skip
"""Refused with ENOSYS, upon which callers take an older way. clone3's flags are where a filter cannot look."""

_CLONE, _SOCKET, _SOCKETPAIR = (56, 220), (41, 198), (53, 199)
_CONNECT, _SENDTO, _IOCTL = (42, 203), (44, 206), (16, 29)
_NEW_NAMESPACES = system.NAMESPACES | system.CLONE_NEWUSER | system.CLONE_NEWNS
_UNIX, _INET, _INET6, _NETLINK, _DATAGRAM = 1, 2, 10, 16, 2
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C


def install(*, connecting: bool = False) -> None:
    """Refuse them to this process, with all its threads, and to all that it starts, for ever. Needs no_new_privs.

    Args:
        connecting: leave out that sockets are not connected.

    Raises:
        OSError: this kernel has no filters, or a thread has others.
    """
    machine = os.uname().machine
    code = program(machine, connecting=connecting)
    instructions = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(instructions))
    thread: int = system.call("syscall", MACHINES[machine][1], _SET_MODE_FILTER, _ALL_THREADS, head)
    if thread:
        raise OSError(errno.ESRCH, f"seccomp: thread {thread} has other filters")


def program(machine: str, *, connecting: bool = False) -> bytes:
    """The filter, in classic BPF; `machine` is one of MACHINES."""
    column = list(MACHINES).index(machine)
    eperm, enosys = _error(errno.EPERM), _error(errno.ENOSYS)
    lines = [
        _line(_LOAD, _ARCHITECTURE),
        _line(_JUMP_IF_EQUAL, MACHINES[machine][0], yes=1),
        _line(_RETURN, _KILL),
        _line(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        lines += [_line(_JUMP_IF_AT_LEAST, _X32, no=1), enosys]
    for calls, answer in ((REFUSED, eperm), (ABSENT, enosys)):
        numbers = [numbers[column] for numbers in calls.values()]
        for number in numbers:
            lines += _if_equal(number, [answer]) if number is not None else []
    for call, rule in _rules().items():
        lines += [] if connecting and call is _CONNECT else _if_equal(call[column], rule)
    return b"".join([*lines, _line(_RETURN, _ALLOW)])


def _rules() -> dict[tuple[int, int], list[bytes]]:
    """What is decided by arguments; each list ends with an answer."""
    allow, eperm = _line(_RETURN, _ALLOW), _error(errno.EPERM)
    no_family = _error(errno.EAFNOSUPPORT)
    stream = [*_argument(1), _line(_AND, 0xF), *_if_equal(_DATAGRAM, [eperm]), allow]
    routes = [*_argument(2), *_if_equal(0, [allow]), no_family]
    return {
        _CLONE: [*_argument(0), _line(_JUMP_IF_ANY, _NEW_NAMESPACES, no=1), eperm, allow],
        # Of families, those that a network namespace has its own of; vsock, for one, leads out of every one.
        # Unix datagrams can be addressed with sendmsg, where a filter cannot see to what.
        _SOCKET: [
            *_argument(0), *_if_equal(_UNIX, stream), *_if_equal(_INET, [allow]), *_if_equal(_INET6, [allow]),
            *_if_equal(_NETLINK, routes), no_family,
        ],
        _SOCKETPAIR: [*_argument(0), *_if_equal(_UNIX, stream), no_family],
        # Services listen on sockets in the file system, which no namespace hides. "No such file" is what CUDA
        # takes for "no MPS daemon".
        _CONNECT: [_error(errno.ENOENT)],
        _SENDTO: [
            *_argument(4), *_if_other(0, [eperm]), *_argument(4, high=True), *_if_other(0, [eperm]), allow,
        ],
        _IOCTL: [*_argument(1), *_if_equal(_TIOCSTI, [eperm]), *_if_equal(_TIOCLINUX, [eperm]), allow],
    }  # fmt: skip


def _line(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """One instruction; `yes` and `no` are how many further ones a jump leaves out."""
    return struct.pack("HBBI", code, yes, no, value)


def _error(number: int) -> bytes:
    return _line(_RETURN, _ERRNO | number)


def _argument(index: int, *, high: bool = False) -> list[bytes]:
    """Load the low or high half of an argument."""
    return [_line(_LOAD, _ARGUMENTS + 8 * index + 4 * high)]


def _if_equal(value: int, then: list[bytes]) -> list[bytes]:
    return [_line(_JUMP_IF_EQUAL, value, no=len(then)), *then]


def _if_other(value: int, then: list[bytes]) -> list[bytes]:
    return [_line(_JUMP_IF_EQUAL, value, yes=len(then)), *then]
