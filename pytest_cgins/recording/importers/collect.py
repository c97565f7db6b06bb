"""One pack out of many calls, each of which may fail without harm to the others."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_cgins.core.errors import CginsError, RecordError
from pytest_cgins.core.trace import TRACE_PACK_VERSION, Trace, TracePack
from pytest_cgins.packs import backward
from pytest_cgins.packs.inputs import Tier
from pytest_cgins.packs.store import PackReader, PackWriter, blobs_of, open_pack
from pytest_cgins.recording.record import pack_name, record

TELLS_EVERY_S = 5.0
_MIB = 2**20
_MOST = 2**63 - 1
"""Calls that a trace may stand for."""


@dataclass(frozen=True, slots=True)
class Imported:
    """One entry of the source that became a trace."""

    entry: str
    """Its name in the source."""
    op: str
    signature: str
    replay: str
    """How its replay went."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """One entry of the source that did not become a trace."""

    entry: str
    """Its name in the source."""
    reason: str
    """Why, in one line."""
    remedy: str = ""
    """What to do about it, where something can be done."""


@dataclass(slots=True)
class Report:
    """What an import did."""

    imported: list[Imported] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What holds of the whole import: a device that was mapped, sizes that were overridden."""
    tolerances: dict[str, tuple[float, float]] = field(default_factory=dict)
    """(rtol, atol) of ops whose source states them."""
    pack: TracePack | None = None
    """None if nothing was imported: then nothing was written."""

    def note(self, text: str) -> None:
        """Add a note once."""
        if text not in self.notes:
            self.notes.append(text)


@dataclass(frozen=True, slots=True)
class Call:
    """What became of one call."""

    ran: bool
    """Whether the op ran."""
    result: Any
    """What it returned."""
    recorded: bool
    """Whether there is a trace of it."""


class Collector:
    """Records calls one by one, and writes those that went well as one pack.

    A context manager: `finish` puts the pack in place; without it nothing is written.

    Raises:
        PackError: at once, if `out` is something else than a pack.
        RecordError: at once, if nothing can be written there, or a pack cannot be named so.
    """

    def __init__(self, out: Path, tier: Tier, name: str | None = None) -> None:
        self.out = out
        self.tier: Tier = tier
        self.name = pack_name(out, name)
        self.report = Report()
        self._told = time.monotonic()
        self._traces: dict[str, Trace] = {}
        self._writer = PackWriter(out)

    def __enter__(self) -> Collector:
        self._writer.__enter__()
        self._staging = Path(tempfile.mkdtemp(prefix=f".{self.out.name}.", dir=self._writer.folder.parent))
        return self

    def __exit__(self, *raised: object) -> None:
        shutil.rmtree(self._staging, ignore_errors=True)
        self._writer.__exit__(*raised)

    def leave_out(self, entry: str, reason: str | BaseException) -> None:
        """Note that an entry does not become a trace."""
        text = reason if isinstance(reason, str) else one_line(reason)
        remedy = reason.remedy if isinstance(reason, CginsError) else ""
        self.report.left_out.append(LeftOut(entry, text, remedy))

    def record(self, entry: str, op: str, call: Callable[[], Any], count: int = 1) -> Call:
        """Run a call of an op, and keep its trace; if that fails, the entry is left out with the reason.

        Args:
            entry: name in the source.
            op: qualified name of the op that `call` calls once.
            call: what to run; it must look the op up by its name, so that the recorder sees it.
            count: how often the source says that this call occurs.
        """
        outcome = Call(ran=False, result=None, recorded=False)
        with self.staged(entry) as folder:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with record(folder, [op], self.tier, name="staged"):
                    outcome = replace(outcome, result=call(), ran=True)
            self.adopt(entry, open_pack(folder), count)
            outcome = replace(outcome, recorded=True)  # not reached where the entry is left out
        return outcome  # noqa: RET504

    @contextmanager
    def staged(self, entry: str) -> Iterator[Path]:
        """A folder for the pack of one entry; what goes wrong in the body leaves the entry out."""
        folder = self._staging / "pack"
        with self.leaving_out(entry):
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def leaving_out(self, entry: str) -> Iterator[None]:
        """What goes wrong in the body leaves the entry out, with its reason; the import goes on behind it.

        One that takes long tells on stderr what it is at.
        """
        now = time.monotonic()
        if now - self._told > TELLS_EVERY_S:
            self._told = now
            print(f"cgins: {len(self.report.imported)} recorded, at {entry!r}", file=sys.stderr)
        try:
            yield
        except SystemExit as error:
            self.leave_out(entry, RecordError(f"its code ends the process, with status {error.code}"))
        except Exception as error:  # noqa: BLE001 - foreign files and foreign code raise anything
            self.leave_out(entry, error)

    def adopt(self, entry: str, reader: PackReader, count: int = 1) -> None:
        """Take over the traces of an entry's own pack."""
        for blob in blobs_of(reader.pack):
            self._writer.add(reader.read(blob))
        for trace in reader.pack.traces:
            known = self._traces.get(trace.id)
            occurs = max(1, count) * trace.count + (known.count if known is not None else 0)
            kept = known or replace(trace, signature=self._own(trace))
            self._traces[trace.id] = replace(kept, count=min(occurs, _MOST))
            self.report.imported.append(Imported(entry, trace.call.op, kept.signature, trace.replay))

    def _own(self, trace: Trace) -> str:
        """The signature, with part of the id where another trace of the op has it: same form, other values."""
        taken = {(known.call.op, known.signature) for known in self._traces.values()}
        if (trace.call.op, trace.signature) not in taken:
            return trace.signature
        return f"{trace.signature}-{trace.id[:8]}"

    def finish(self) -> Report:
        """Put the pack in place, if there is a trace."""
        if self._traces:
            traces = sorted(self._traces.values(), key=lambda trace: (trace.call.op, trace.signature))
            pack = TracePack(version=TRACE_PACK_VERSION, name=self.name, tier=self.tier, traces=tuple(traces))
            self.report.pack = self._writer.commit(pack).pack
        return self.report


def one_line(error: BaseException) -> str:
    """The reason that an exception gives, for a list."""
    if isinstance(error, CginsError):
        return error.what
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(": ")


def check_result(op: str, args: Any, kwargs: Any, max_mib: float) -> None:
    """Refuse a call whose outputs are too big, before it allocates them; where torch cannot say, let it pass.

    Raises:
        RecordError: if they have more than `max_mib` MiB.
    """
    try:
        with torch.no_grad(), warnings.catch_warnings(), _OnMeta():  # type: ignore[no-untyped-call]
            warnings.simplefilter("ignore")
            made = backward.resolve(op)(*on("meta", args), **on("meta", kwargs))
    except Exception:  # noqa: BLE001 - some sizes follow from values, and what is wrong the real call tells
        return
    check_size(made, max_mib, what="outputs")


class Budget:
    """What the tensors of one call may still take; it is asked before each of them is made."""

    def __init__(self, max_mib: float) -> None:
        self._max_mib = max_mib
        self._taken = 0

    def take(self, nbytes: int, what: str) -> None:
        """Reserve the bytes of one more tensor.

        Raises:
            RecordError: if it, or all of them together, would have more than `max_mib` MiB.
        """
        self._taken += nbytes
        for size, whose in ((nbytes, what), (self._taken, "inputs")):
            if size > self._max_mib * _MIB:
                raise RecordError(
                    f"{whose} of {size / _MIB:.0f} MiB, more than --max-mib, {self._max_mib:g}",
                    remedy="raise --max-mib, or make the inputs smaller",
                )


class _OnMeta(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Has factories, which no argument sends anywhere, make tensors without memory."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        named = {argument.name for argument in func._schema.arguments}
        if "device" in named and not any(True for _ in tensors_in([*args, kwargs])):
            kwargs["device"] = torch.device("meta")
        return func(*args, **kwargs)


def check_size(values: object, max_mib: float, *, what: str = "inputs") -> None:
    """Refuse arguments whose tensors are too big together.

    Raises:
        RecordError: if they have more than `max_mib` MiB.
    """
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(values)) / _MIB
    if size > max_mib:
        raise RecordError(
            f"its {what} have {size:.0f} MiB, more than the {max_mib:g} MiB of --max-mib",
            remedy="raise --max-mib, or make the inputs smaller",
        )


def tensors_in(values: object) -> Iterator[torch.Tensor]:
    """The tensors in a tree of lists, tuples, dicts and modules."""
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, torch.nn.Module):
        yield from values.parameters()
        yield from values.buffers()
    elif isinstance(values, list | tuple | dict):
        for item in values.values() if isinstance(values, dict) else values:
            yield from tensors_in(item)


def _moved(tensor: torch.Tensor, device: str) -> torch.Tensor:
    moved = tensor.to(device)
    if tensor.layout is not torch.strided or moved.stride() == tensor.stride():
        return moved
    # `to` closes gaps between elements, and gives those that share memory their own.
    flat = torch.empty(0, dtype=tensor.dtype).set_(tensor.detach().untyped_storage()).to(device)
    return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def on(device: str, values: Any) -> Any:
    """A tree of lists, tuples and dicts with its tensors, and the devices that it names, on a device."""

    def change(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return _moved(leaf, device)
        return torch.device(device) if isinstance(leaf, torch.device) else leaf

    return mapped(values, change)


def mapped(values: Any, change: Callable[[Any], Any]) -> Any:
    """A tree of lists, tuples and dicts with other leaves."""
    if isinstance(values, dict):
        return {name: mapped(item, change) for name, item in values.items()}
    if isinstance(values, list | tuple):
        return type(values)(mapped(item, change) for item in values)
    return change(values)
