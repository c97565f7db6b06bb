"""The hook `proc-receive` of the twin's repository: git asks it about protected branches alone, and it declines them.

Only this hook may say why a branch was declined; `pre-receive` and `update` have fixed words.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

REASON = "protected branch hook declined"


def main() -> None:
    """Speak version 1 of the protocol (git's documentation of hooks, proc-receive)."""
    list(_read())
    _write(b"version=1\0", None)
    for line in list(_read()):
        _, _, ref = line.decode().rstrip("\n").split(" ", 2)
        print(f"error: GH006: Protected branch update failed for {ref}.", file=sys.stderr)
        print("error: Changes must be made through a pull request.", file=sys.stderr)
        _write(f"ng {ref} {REASON}\n".encode())
    _write(None)


def _read() -> Iterator[bytes]:
    """Packets until the empty one."""
    while size := int(sys.stdin.buffer.read(4) or b"0", 16):
        yield sys.stdin.buffer.read(size - 4)


def _write(*packets: bytes | None) -> None:
    for one in packets:
        sys.stdout.buffer.write(b"0000" if one is None else b"%04x" % (len(one) + 4) + one)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
