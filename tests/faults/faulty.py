"""Kernels for relu, each of which breaks its worker in one way. Copied into a project by `project.make`."""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import subprocess
import sys
import time

import torch


def right(x):
    return x.clamp_min(0)


def segfault(x):
    ctypes.string_at(0)


def arithmetic(x):
    os.kill(os.getpid(), 8)


def abort(x):
    os.abort()


def hard_exit(x):
    os._exit(0)


def soft_exit(x):
    sys.exit(0)


def hang(x):
    while True:
        pass


def hang_in_c(x):
    ctypes.PyDLL(None).sleep(600)


def memory_error(x):
    return bytearray(2**60)


def host_allocation(x):
    return torch.empty(2**50)


def grows(x):
    kept = []
    while True:
        kept.append(b"x" * 2**26)


def floods_stdout(x):
    while True:
        os.write(1, b"x" * 65536)


def floods_stderr(x):
    while True:
        os.write(2, b"x" * 65536)


def forks(x):
    """Enough processes for the limit, and no more: the machine is others', too."""
    for _ in range(200):
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
            os._exit(0)
    time.sleep(600)


def daemons(x):
    """Processes that left the session, lost their parents and shed their environment."""
    for _ in range(200):
        subprocess.Popen(["env", "-i", "setsid", "sh", "-c", "sleep 600 & sleep 0.01"])
    time.sleep(600)


def closes(x):
    os.closerange(0, 4096)
    time.sleep(600)


def closes_and_returns(x):
    os.closerange(3, 4096)
    return x.clamp_min(0)


def forges(x):
    """Answers in the service's place with what would be a pass, if anybody believed it."""
    bodies = [
        b'{"version":2,"buffers":0,"done":true}',
        b'{"version":2,"buffers":0,"nonce":"","result":{"sets":[]},"fatal":false}',
    ]
    content = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    for fd in range(3, 1024):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                os.write(fd, content)
    return x.clamp_min(0)


def hang_on_the_gpu(x):
    torch.cuda._sleep(2**62)
    return x.clamp_min(0)


def illegal_address(x):
    """A tensor on an address that nobody has allocated."""
    nbytes = 4 * x.numel()
    storage = torch._C._construct_storage_from_data_pointer(2**46 + 4096, x.device, nbytes)
    wild = torch.empty(0, dtype=torch.float32, device=x.device).set_(storage, 0, tuple(x.shape))
    return x + wild


def device_assert(x):
    return x.flatten()[torch.full((x.numel(),), 10**9, device=x.device)].view_as(x)


def device_allocation(x):
    return torch.empty(2**50, device=x.device)
