"""Trace packs on disk: `manifest.json` and content-addressed `blobs/<sha256>.safetensors`.

Reading trusts nothing: sizes, JSON depth, version, every number and every file length are checked before
a tensor is allocated, and file names come from validated digests only. FORMAT.md says what the JSON
Schema cannot. Neither torch nor, until a blob is read or written, numpy is imported.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_cgins.core import documents
from pytest_cgins.core.errors import DiskError, PackError, RecordError
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import TRACE_PACK_VERSION, Blob, Gold, Storage, Trace, TracePack
from pytest_cgins.packs.validate import problems

MANIFEST = "manifest.json"
BLOBS = "blobs"
PROFILES = "profiles"
MAX_MANIFEST_BYTES = 64 * 2**20
MAX_JSON_DEPTH = 96
MAX_JSON_VALUES = 2**20
"""Numbers, texts and containers of one document: each costs its reader far more bytes than its writer."""
MAX_HEADER_BYTES = 1024

_DAMAGED = "the pack is damaged: restore it from version control, or record it again"
_SEALED = ("call", "tensors", "storages", "context", "gold")


# ---- reading ------------------------------------------------------------------------------------


class PackReader:
    """An open pack. Its manifest has been validated; a blob is checked when it is read."""

    def __init__(self, folder: Path, pack: TracePack) -> None:
        self.folder = folder
        self.pack = pack

    def read(self, blob: Blob) -> bytes:
        """The `nbytes` bytes of a blob.

        Raises:
            PackError: if the file is missing, is not a regular file, or does not hold what its name says.
        """
        return _read_blob(self.folder, blob)

    def verify(self) -> None:
        """Read every blob and make every recipe.

        Raises:
            PackError: for the first that is not what the manifest says.
        """
        from pytest_cgins.packs.recipe import generate

        for blob in blobs_of(self.pack):
            self.read(blob)
        for trace in self.pack.traces:
            for storage in trace.storages:
                if storage.recipe is not None:
                    generate(storage, self)


def open_pack(folder: Path | str) -> PackReader:
    """Open a trace pack, validated; the cost is that of its manifest.

    Raises:
        PackError: naming file and field of the first thing that is wrong.
    """
    folder = Path(folder)
    pack = read_manifest(folder)
    if (folder / BLOBS).is_symlink():
        raise PackError(f"{folder / BLOBS}: is a symbolic link", remedy="copy the blobs into the pack")
    for blob in blobs_of(pack):
        _check_blob_file(_blob_path(folder, blob), blob)
    return PackReader(folder, pack)


def read_manifest(folder: Path) -> TracePack:
    """A trace pack's manifest, validated; its blobs need not be there.

    Raises:
        PackError: as `open_pack`.
    """
    path = folder / MANIFEST
    text = read_file(path, MAX_MANIFEST_BYTES)
    raw = _parse(path, text)
    try:
        pack = documents.load(TracePack, text)
    except ValueError as error:
        raise PackError(f"{path}: {first_complaint(error)}", remedy=_DAMAGED) from error
    for problem in problems(pack):
        raise PackError(f"{path}: {problem.field}: {problem.what}", remedy=_DAMAGED)
    for index, (trace, document) in enumerate(zip(pack.traces, raw["traces"], strict=True)):
        if trace.id != digest_of(document):
            raise PackError(
                f"{path}: traces[{index}].id: {trace.id} is not the digest of its content", remedy=_DAMAGED
            )
    return pack


def _parse(path: Path, text: bytes) -> Any:
    """The manifest as plain objects, once its depth and version are known to be good."""
    check_depth(path, text)
    try:
        # Bytes would be taken for UTF-16 where they look like it, with brackets that nobody has counted.
        raw = json.loads(text.decode("utf-8"))
    except ValueError as error:
        raise PackError(f"{path}: is not JSON: {error}", remedy=_DAMAGED) from error
    version = raw.get("version") if isinstance(raw, dict) else None
    if type(version) is not int or version < 1:
        raise PackError(f"{path}: version: {version!r} is not a schema version", remedy=_DAMAGED)
    if version > TRACE_PACK_VERSION:
        raise PackError(
            f"{path}: version: {version} was written by a newer pytest-cgins; "
            f"this one reads version {TRACE_PACK_VERSION}",
            remedy="upgrade pytest-cgins, or record the pack again with this version",
        )
    return raw


def check_depth(path: Path, text: bytes) -> None:
    """Raise PackError if JSON is nested deeper, or has more values, than a parser may be asked to follow."""
    values, deepest = documents.extent(text, MAX_JSON_VALUES)
    if values > MAX_JSON_VALUES:
        raise PackError(
            f"{path}: has more than {MAX_JSON_VALUES} values",
            remedy="record fewer calls into one pack: --max-per-op, fewer --ops",
        )
    if deepest > MAX_JSON_DEPTH:
        raise PackError(f"{path}: nested {deepest} deep; {MAX_JSON_DEPTH} is allowed", remedy=_DAMAGED)


def first_complaint(error: ValueError) -> str:
    """The first complaint of a validation as `traces[3].tensors[1].stride: …`."""
    details = getattr(error, "errors", None)
    if details is None:
        return str(error)
    first = details(include_url=False, include_input=False, include_context=False)[0]
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    return f"{field.removeprefix('.') or 'manifest'}: {first['msg']}"


def read_file(path: Path, limit: int) -> bytes:
    """Content of a regular file of at most `limit` bytes that is not reached through a symbolic link."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        raise PackError(
            f"{path}: {'is not there' if missing else error.strerror}",
            remedy="check the path, or record the pack again" if missing else "put a regular file there",
        ) from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise PackError(f"{path}: is not a regular file", remedy=_DAMAGED)
    with os.fdopen(descriptor, "rb") as file:
        if status.st_size > limit:
            raise PackError(
                f"{path}: has {counted(status.st_size, 'byte')}; at most {limit} are allowed", remedy=_DAMAGED
            )
        return file.read(limit + 1)


def _blob_path(folder: Path, blob: Blob) -> Path:
    return folder / BLOBS / f"{blob.sha256}.safetensors"


def _check_blob_file(path: Path, blob: Blob) -> None:
    try:
        status = path.lstat()
    except OSError as error:
        raise PackError(f"{path}: is not there", remedy=_DAMAGED) from error
    if not stat.S_ISREG(status.st_mode):
        raise PackError(f"{path}: is not a regular file", remedy=_DAMAGED)
    with path.open("rb") as file:
        _check_header(path, file.read(8 + MAX_HEADER_BYTES), status.st_size, blob)


def _check_header(path: Path, start: bytes, size: int, blob: Blob) -> None:
    """The file must be a safetensors header for one uint8 vector `data`, and that vector, and no more."""
    length = int.from_bytes(start[:8], "little")
    if len(start) < 8 or length > MAX_HEADER_BYTES or size != 8 + length + blob.nbytes:
        raise PackError(
            f"{path}: has {counted(size, 'byte')}, which are not a header and the {counted(blob.nbytes, 'byte')} of its data",
            remedy=_DAMAGED,
        )
    wanted = {"data": {"dtype": "U8", "shape": [blob.nbytes], "data_offsets": [0, blob.nbytes]}}
    try:
        header = json.loads(start[8 : 8 + length])
    except (ValueError, RecursionError):
        header = None
    if header != wanted:
        raise PackError(f"{path}: header: is not {json.dumps(wanted)}", remedy=_DAMAGED)


def _read_blob(folder: Path, blob: Blob) -> bytes:
    from safetensors.numpy import load

    path = _blob_path(folder, blob)
    content = read_file(path, MAX_HEADER_BYTES + 8 + blob.nbytes)
    _check_header(path, content[: 8 + MAX_HEADER_BYTES], len(content), blob)
    digest = hashlib.sha256(content).hexdigest()
    if digest != blob.sha256:
        raise PackError(f"{path}: its content has sha256 {digest}", remedy=_DAMAGED)
    return load(content)["data"].tobytes()


def blobs_of(pack: TracePack) -> list[Blob]:
    """Each blob of a pack, once."""
    return list(dict.fromkeys(blob for trace in pack.traces for blob in blobs_in(trace.storages, trace.gold)))


def blobs_in(storages: Iterable[Storage], gold: Gold | None = None) -> Iterator[Blob]:
    """Blobs of storages and of gold, with repetitions."""
    for storage in storages:
        yield from filter(None, (storage.blob, storage.recipe.masked if storage.recipe else None))
    for tensor in gold.tensors if gold is not None else ():
        yield from filter(None, (tensor.blob, tensor.sample_blob))


# ---- writing ------------------------------------------------------------------------------------


def seal(trace: Trace) -> Trace:
    """The trace with the id that its content has."""
    return replace(trace, id=digest_of(documents.dump_python(trace)))


def digest_of(document: dict[str, Any]) -> str:
    """Id of a trace, from its JSON as plain objects."""
    # Over the JSON as it is on disk, so that a field added later with a default breaks no old pack.
    content = {name: document.get(name) for name in _SEALED}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class PackWriter:
    """Writes a pack beside its target, and puts it there in one step, or not at all.

    A context manager: whatever ends it before `commit` (an error, Ctrl-C) leaves the target as it was.

    Raises:
        PackError: at once, if the target is something else than a pack.
        RecordError: at once, if nothing can be written beside the target.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder).absolute()
        self._scratch = self.folder.with_name(f".{self.folder.name}.{secrets.token_hex(4)}.tmp")
        try:
            _check_replaceable(self.folder)
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            (self._scratch / BLOBS).mkdir(parents=True)
        except OSError as error:
            raise RecordError(
                f"{self.folder} cannot be written: {error.strerror}",
                remedy="record into a folder that you may write to",
            ) from error
        self._known: dict[bytes, Blob] = {}
        self._keys: dict[Blob, bytes] = {}

    def __enter__(self) -> PackWriter:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)

    def add(self, data: bytes | memoryview) -> Blob:
        """Write bytes as a blob; the same bytes are written once.

        Raises:
            DiskError: if the disk is full.
        """
        import numpy as np
        import xxhash
        from safetensors.numpy import save

        key = xxhash.xxh3_128_digest(data)
        known = self._known.get(key)
        if known is None:
            content = save({"data": np.frombuffer(data, dtype=np.uint8)})
            known = Blob(sha256=hashlib.sha256(content).hexdigest(), nbytes=memoryview(data).nbytes)
            self._write(_blob_path(self._scratch, known), content)
            self._known[key] = known
            self._keys[known] = key
        return known

    def discard(self, blob: Blob) -> None:
        """Remove a blob that nothing refers to any more."""
        if blob in self._keys:
            del self._known[self._keys.pop(blob)]
            _blob_path(self._scratch, blob).unlink()

    def _write(self, path: Path, content: bytes) -> None:
        try:
            path.write_bytes(content)
        except OSError as error:
            raise DiskError(
                f"{self.folder} cannot be written: {error.strerror}, with {len(content) / 2**20:.1f} MiB to go into "
                f"{path.name} and {sum(blob.nbytes for blob in self._keys) / 2**20:.1f} MiB there",
                remedy="free space, record to another disk (--out), or keep less: --tier recipe, --max-per-op, "
                "--top-time, fewer --ops",
            ) from error

    def read(self, blob: Blob) -> bytes:
        """What `add` has written."""
        return _read_blob(self._scratch, blob)

    def preview(self, pack: TracePack) -> PackReader:
        """Write the manifest, and open what has been written so far as a reader would."""
        head = documents.dump(replace(pack, traces=()))
        traces = ",\n".join(documents.dump(trace) for trace in pack.traces)
        text = head.replace('"traces":[]', f'"traces":[\n{traces}\n]') + "\n"
        self._write(self._scratch / MANIFEST, text.encode())
        return open_pack(self._scratch)

    def commit(self, pack: TracePack) -> PackReader:
        """Write the manifest, check the pack, and put it in place of whatever pack was there."""
        self.preview(pack)
        kept = {_blob_path(self._scratch, blob) for blob in blobs_of(pack)}
        # A call may prove unrecordable after its arguments have been written.
        for file in set((self._scratch / BLOBS).iterdir()) - kept:
            file.unlink()
        _check_replaceable(self.folder)
        old = self._scratch.with_suffix(".old")
        try:
            if self.folder.exists():
                self.folder.rename(old)
            self._scratch.rename(self.folder)
        except BaseException:
            if old.exists() and not self.folder.exists():
                old.rename(self.folder)
            raise
        shutil.rmtree(old, ignore_errors=True)
        return PackReader(self.folder, pack)


def _check_replaceable(folder: Path) -> None:
    """Raise PackError unless the folder is absent, empty, or a trace pack and nothing besides."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise PackError(f"{folder} is not a folder", remedy="record into a new folder")
    present = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
    others = present - {MANIFEST, BLOBS, PROFILES}
    if others or (present and MANIFEST not in present):
        raise PackError(
            f"{folder} is not a trace pack: it has {', '.join(sorted(others or present))}",
            remedy="record into a new folder, or move these files away",
        )
    if present and b'"traces"' not in read_file(folder / MANIFEST, MAX_MANIFEST_BYTES):
        raise PackError(
            f"{folder} is not a trace pack: its {MANIFEST} has no traces", remedy="record into a new folder"
        )
