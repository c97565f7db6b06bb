"""Pairs of `.pt` files that CGinS and GinS keep: inputs, and the gold that their model gave.

`X_inputs.pt` with `X_gold.pt`, `inputN.pt` with `goldN.pt`, and `entry_N.pt` with both and the op's name. Inputs
are a list of arguments, or `{"args": …, "kwargs": …}`.
"""

from __future__ import annotations

import argparse
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from pytest_cgins.core.errors import RecordError, ReplayError
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import Trace
from pytest_cgins.packs import backward, gold, replay
from pytest_cgins.packs.store import PackReader, PackWriter, blobs_of, open_pack, seal
from pytest_cgins.packs.values import MAX_DEPTH
from pytest_cgins.recording.importers.collect import Collector, on
from pytest_cgins.recording.importers.files import require_torch_op
from pytest_cgins.recording.record import record

_INPUTS = re.compile(r"(?P<head>.*?)inputs?(?P<number>\d*)\.pt")
_ENTRY = re.compile(r"entry_\d+\.pt")
_MAX_ITEMS = 2**20


@dataclass(frozen=True, slots=True)
class Pair:
    """One recorded call."""

    entry: str
    """Name under the source folder."""
    op: str
    """What the file itself says, or ""."""
    args: list[Any]
    kwargs: dict[str, Any]
    gold: Any
    """What their run returned."""


def run(args: argparse.Namespace, collector: Collector) -> None:
    """Record every pair under a folder; the gold is theirs, and the collector's tier is `full`.

    A pair whose gold this torch does not reproduce within the derived rule is left out as drift.

    Raises:
        RecordError: if there is no pair.
    """
    source: Path = args.source
    ops = {start: op for start, _, op in (text.rpartition("=") for text in args.op)}
    files = sorted(source.rglob("*.pt")) if source.is_dir() else []
    pairs = list(_files(files, source))
    for name, inputs, answers in pairs:
        with collector.leaving_out(name):
            pair = _load(name, inputs, answers)
            _take(collector, pair, _op_of(pair, ops), args.device)
    if not pairs:
        raise RecordError(
            f"{source} has no X_inputs.pt with X_gold.pt, inputN.pt with goldN.pt, or entry_N.pt",
            remedy="name the folder that CGinS wrote",
        )


def _op_of(pair: Pair, ops: Mapping[str, str]) -> str:
    """The op given for the longest beginning of the pair's name, else what the file says."""
    starts = [start for start in ops if pair.entry.startswith(start)]
    if not pair.op and not starts:
        raise RecordError(f"nothing says which op it is of; pass --op {pair.entry}=torch.…")
    if starts:
        return ops[max(starts, key=len)]
    require_torch_op(pair.op)
    return pair.op


def _files(files: list[Path], source: Path) -> Iterator[tuple[str, Path, Path | None]]:
    """(name, inputs, gold) of each pair; gold is None if it is in the same file or missing."""
    for path in files:
        match = _INPUTS.fullmatch(path.name)
        relative = path.relative_to(source)
        if match is not None:
            name = f"{match['head']}{match['number']}".strip("_") or "pair"
            yield (
                str(relative.with_name(name)),
                path,
                path.with_name(f"{match['head']}gold{match['number']}.pt"),
            )
        elif _ENTRY.fullmatch(path.name):
            yield str(relative.with_suffix("")), path, None


def _load(name: str, inputs: Path, answers: Path | None) -> Pair:
    arguments: Any
    if answers is None:
        entry = _read(inputs)
        if not isinstance(entry, dict) or not {"args", "output"} <= set(entry):
            raise RecordError(f"{inputs.name} has no args and output")
        arguments, answer, op = entry, entry["output"], str(entry.get("function_name") or "")
    else:
        if not answers.is_file():
            raise RecordError(f"its gold, {answers.name}, is not there")
        arguments, answer, op = _read(inputs), _read(answers), ""
    if isinstance(arguments, dict) and {"args", "kwargs"} & set(arguments):
        args, kwargs = arguments.get("args", []), arguments.get("kwargs", {})
    else:
        args, kwargs = [arguments] if isinstance(arguments, torch.Tensor) else arguments, {}
    if not isinstance(args, list | tuple) or not isinstance(kwargs, dict):
        raise RecordError(f"{inputs.name} holds neither a list of inputs nor args and kwargs")
    return Pair(name, op, list(args), kwargs, answer)


def _read(path: Path) -> Any:
    if not path.is_file():  # a FIFO would be waited for
        raise RecordError(f"{path.name} is not a regular file")
    try:
        _refuse_compressed(path)
        value = torch.load(path, map_location="cpu", weights_only=True)
        _check_depth(value)
        return value
    except RecordError:
        raise
    # What the unpickler meets in a hostile file it reports in any way; nothing of it was run.
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise RecordError(f"{path.name} cannot be read with weights_only=True: {first}") from error


def _refuse_compressed(path: Path) -> None:
    """Refuse what would be far larger in memory than on disk; torch stores without compression."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
            raise RecordError(f"{path.name} is compressed, as torch.save never does")


def _check_depth(value: Any) -> None:
    """Refuse containers that are nested deeply, or in themselves."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [item for one in level for item in _items(one)]
        if not level:
            return
        if len(level) > _MAX_ITEMS:
            break
    raise RecordError(f"it is nested deeper than {MAX_DEPTH} containers, or has more than {_MAX_ITEMS} items")


def _items(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value, *value.values()]
    return [*value] if isinstance(value, list | tuple | set | frozenset) else []


def _take(collector: Collector, pair: Pair, op: str, device: str) -> None:
    with collector.staged(pair.entry) as folder:
        args, kwargs = on(device, pair.args), on(device, pair.kwargs)
        with torch.no_grad(), record(folder, [op], "full", name="staged"):
            backward.resolve(op)(*args, **kwargs)
        reader = open_pack(folder)
        with PackWriter(folder) as writer:
            for blob in blobs_of(reader.pack):
                writer.add(reader.read(blob))
            (trace,) = reader.pack.traces
            trace = _with_gold(trace, pair, reader, writer)
            own = replace(reader.pack, traces=(trace,))
            preview = writer.preview(own)
            try:
                outcome = replay.check(trace, preview)
            except ReplayError as error:
                raise RecordError(f"drift: {error.what}", remedy=error.remedy) from error
            adopted = writer.commit(replace(own, traces=(replace(trace, replay=outcome),)))
        collector.adopt(pair.entry, adopted)


def _with_gold(trace: Trace, pair: Pair, reader: PackReader, writer: PackWriter) -> Trace:
    """The trace with the recorded gold of the pair in place of this run's."""
    if trace.gold is None or trace.gold.mutated:
        raise RecordError("the op changes its arguments, and a pair has no gold for these")
    inputs = replay.load_inputs(trace, reader, "cpu")
    answer = (
        tuple(pair.gold) if isinstance(pair.gold, list) and trace.gold.outputs.kind == "tuple" else pair.gold
    )
    described = gold.describe(answer, inputs, (), "full", writer.add)
    theirs, ours = described.tensors, trace.gold.tensors
    if len(theirs) != len(ours):
        raise RecordError(f"their gold has {counted(len(theirs), 'tensor')}, the op gives {len(ours)}")
    for number, (one, other) in enumerate(zip(theirs, ours, strict=True)):
        if (one.meta.dtype, one.meta.shape) != (other.meta.dtype, other.meta.shape):
            raise RecordError(
                f"drift: output {number} of their gold is {one.meta.dtype} {list(one.meta.shape)}, "
                f"the op gives {other.meta.dtype} {list(other.meta.shape)}"
            )
    # How outputs lie and alias is the op's; a file keeps their values alone.
    tensors = tuple(replace(one, meta=other.meta) for one, other in zip(theirs, ours, strict=True))
    return seal(replace(trace, gold=replace(trace.gold, tensors=tensors)))
