"""The process that asks servers, so that no answer is paid for twice.

It is started in a session of its own and told one order a line on its stdin. Each gets a thread, which holds the lock
of its place, writes `sent.json`, asks, and writes `answer.json` or `error.json`. Ctrl-C in a terminal does not reach
it. When its stdin ends, or the process that started it is gone, it begins no new try, but waits for the answers that
are under way, writes them, and ends. A run that is resumed finds them: whoever is asked for a place that has an answer
asks nobody, and whoever finds its lock held waits.

An answer is lost only if this process itself dies, as when the machine does. Then the place has `sent.json`, no answer
and a free lock; the next courier counts that in `lost.json` and in the answer's `tries` and `usage`, and asks again.
So do the tries of a failure that was taken back.

Keys come from the environment, are in no order, and are taken out of all that is written.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from pytest_cgins.core import documents
from pytest_cgins.core.errors import CginsError
from pytest_cgins.core.text import now
from pytest_cgins.regenerate.conversation import Answer, Usage
from pytest_cgins.regenerate.provider import files
from pytest_cgins.regenerate.provider import reply as replies
from pytest_cgins.regenerate.provider.asking import Asking
from pytest_cgins.regenerate.provider.base import Order, priced
from pytest_cgins.regenerate.provider.failures import scrubbed
from pytest_cgins.regenerate.provider.files import Failure, LostAnswers

_PARENT_EVERY_S = 1.0
_DISK_EVERY_S = 1.0
_DISK_LIMIT_S = 600.0


def main() -> int:
    """Take orders until there are no more, and end when the last is settled."""
    alone = threading.Event()
    threads: list[threading.Thread] = []
    for line in _lines(0, os.getppid()):
        order = documents.load(Order, line)
        thread = threading.Thread(target=settle, args=(order, alone))
        thread.start()
        threads = [one for one in threads if one.is_alive()] + [thread]
    alone.set()
    for thread in threads:
        thread.join()
    return 0


def settle(order: Order, alone: threading.Event) -> None:
    """See to it that the place of an order has an answer or a final failure.

    Args:
        order: what is to be asked.
        alone: set when nobody waits for more: then a request that would have to be tried again is left as it is.
    """
    path = Path(order.place)
    key = os.environ.get(order.api_key_env, "").strip() if order.api_key_env else ""
    with files.held(path):
        if files.is_settled(path):
            return
        asking = None
        outcome: Answer | Failure | None
        try:
            request = files.request_in(path)
            lost = files.lost_in(path)
            if (path / files.SENT).exists():
                lost = _more(lost, [replies.estimated(request)], order)
                files.note_lost(path, lost)
            asking = Asking(
                order, request, key, alone=alone, before=lost, tell=lambda line: _tell(path, line)
            )
            files.mark_sent(path, request.model, now())
            outcome = asking.run()
        except Exception as error:  # noqa: BLE001
            outcome = _unforeseen(error, key, asking)
        if outcome is None:
            files.note_lost(path, _more(lost, asking.lost if asking else [], order))
            return
        _keep(path, outcome)


def _more(lost: LostAnswers, usages: Sequence[Usage], order: Order) -> LostAnswers:
    """With so many more answers that are lost."""
    usage = lost.usage
    for one in usages:
        usage = priced(replies.total(usage, one) if usage is not None else one, order.price)
    return LostAnswers(count=lost.count + len(usages), tries=lost.tries + len(usages), usage=usage)


def _unforeseen(error: Exception, key: str, asking: Asking | None) -> Failure:
    if isinstance(error, CginsError):
        what, remedy = error.what, error.remedy
    else:
        what, remedy = f"asking failed with {type(error).__name__}: {error}", "report this"
    return Failure(
        what=scrubbed(what, key)[:2000],
        remedy=remedy,
        retry=not isinstance(error, CginsError),
        tries=asking.tries if asking else 0,
        usage=asking.taken() if asking else None,
    )


def _keep(folder: Path, outcome: Answer | Failure) -> None:
    """Write an outcome. It may have cost money: where the disk is full, it is held until there is room."""
    name = files.ANSWER if isinstance(outcome, Answer) else files.ERROR
    ends = time.monotonic() + _DISK_LIMIT_S
    while True:
        try:
            folder.stat()  # a run that was removed stays so
            files.write_json(folder / name, outcome)
            return
        except OSError as error:
            if not folder.is_dir() or time.monotonic() > ends:
                print(f"{folder / name} cannot be written: {error}", file=sys.stderr)
                return
        time.sleep(_DISK_EVERY_S)


def _tell(folder: Path, line: str) -> None:
    with suppress(OSError), (folder / files.TRIES).open("a", encoding="utf-8", errors="replace") as file:
        file.write(f"{now()} {line}\n")  # for people only


def _lines(handle: int, parent: int) -> Iterator[bytes]:
    """Lines of a pipe until it ends. A descendant of a parent that died may hold its other end: so both are watched."""
    rest = b""
    while os.getppid() == parent:
        if not select.select([handle], [], [], _PARENT_EVERY_S)[0]:
            continue
        data = os.read(handle, 2**16)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from filter(None, lines)


if __name__ == "__main__":
    sys.exit(main())
