"""The filter of system calls, for both machines, interpreted."""

from __future__ import annotations

import errno
import socket
import struct

import pytest

from pytest_cgins.run.sandbox.seccomp import ABSENT, MACHINES, REFUSED, program

ALLOWED = 0x7FFF0000


def judge(machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """What the filter answers; classic BPF as linux/filter.h defines it, as far as it is used."""
    code = program(machine)
    data = struct.pack("iIQ6Q", number, architecture or MACHINES[machine][0], 0, *(*arguments, *[0] * 6)[:6])
    at = accumulator = 0
    while True:
        operation, yes, no, value = struct.unpack_from("HBBI", code, 8 * at)
        at += 1
        if operation == 0x06:
            return int(value)
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("I", data, value)
        elif operation == 0x54:
            accumulator &= value
        else:
            met = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: accumulator & value}
            at += yes if met[operation] else no


def refused_with(number: int) -> int:
    return 0x00050000 | number


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_of_the_lists(machine: str) -> None:
    """Each is refused with its errno; reading, mapping and the ioctl calls of GPUs go through."""
    column = list(MACHINES).index(machine)
    for row in REFUSED.values():
        number = row[column]
        assert number is None or judge(machine, number) == refused_with(errno.EPERM)
    for row in ABSENT.values():
        assert judge(machine, row[column]) == refused_with(errno.ENOSYS)
    read, mmap, ioctl = (0, 63)[column], (9, 222)[column], (16, 29)[column]
    assert judge(machine, read) == ALLOWED
    assert judge(machine, mmap, 0, 1 << 40, 7) == ALLOWED
    assert judge(machine, ioctl, 3, 0xC020462A) == ALLOWED
    assert judge(machine, ioctl, 0, 0x5412) == refused_with(errno.EPERM)


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_that_depend_on_their_arguments(machine: str) -> None:
    """Threads and forks go through and new namespaces do not; so with sockets by family and kind."""
    column = list(MACHINES).index(machine)
    clone, make, pair = (56, 220)[column], (41, 198)[column], (53, 199)[column]
    connect, send = (42, 203)[column], (44, 206)[column]
    assert judge(machine, clone, 0x3D0F00) == ALLOWED
    for bit in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert judge(machine, clone, bit | 17) == refused_with(errno.EPERM)
    for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
        assert judge(machine, make, family, socket.SOCK_STREAM | 0o2000000) == ALLOWED
    assert judge(machine, make, socket.AF_UNIX, 2) == refused_with(errno.EPERM)
    assert judge(machine, make, 16, 3, 0) == ALLOWED
    assert judge(machine, make, 16, 3, 12) == refused_with(errno.EAFNOSUPPORT)
    assert judge(machine, make, 40, 1) == refused_with(errno.EAFNOSUPPORT)
    assert judge(machine, pair, 1, 1) == ALLOWED
    assert judge(machine, pair, 1, 2) == refused_with(errno.EPERM)
    assert judge(machine, connect, 3) == refused_with(errno.ENOENT)
    assert judge(machine, send, 3, 1, 1, 0, 0) == ALLOWED
    for address in (4096, 1 << 40):
        assert judge(machine, send, 3, 1, 1, 0, address) == refused_with(errno.EPERM)


def test_other_machines_calls() -> None:
    """Calls by the numbers of another architecture kill, and those of x32 do not exist."""
    assert judge("x86_64", 59, architecture=0x40000003) == 0x80000000
    assert judge("x86_64", 0x40000000 | 59) == refused_with(errno.ENOSYS)
