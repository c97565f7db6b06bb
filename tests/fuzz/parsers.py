"""Every parser of what others wrote: from bytes to what the package makes of them."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import socket
import warnings
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pytest_cgins.app.commands import import_export
from pytest_cgins.building import resources, sass
from pytest_cgins.building.compilers import diagnostics
from pytest_cgins.building.contracts import launch_line, schema
from pytest_cgins.config.load import load
from pytest_cgins.core import documents, expression
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.errors import CginsError, RecordError
from pytest_cgins.core.session_report import SessionReport
from pytest_cgins.core.tensors import unpack
from pytest_cgins.core.trace import Blob
from pytest_cgins.packs import recipe, store, values
from pytest_cgins.recording import profile
from pytest_cgins.recording.importers import (  # fmt: skip
    backendbench,
    expressions,
    flashinfer,
    gins,
    kernelbench,
    pt_files,
    references,
    refpy,
    registry,
    robustkbench,
)
from pytest_cgins.recording.importers.collect import Collector
from pytest_cgins.report import history_file
from pytest_cgins.run.protocol import Channel
from tests.fuzz import hostile, mutate, seeds

MAX_MIB = 1.0
_WHATEVER_TORCH_SAYS: tuple[type[Exception], ...] = (Exception,)
"""Of steps inside an importer that takes any exception for a reason to leave an entry out."""


@dataclass(frozen=True)
class Parser:
    """One parser under attack."""

    name: str
    """As in the table."""
    make: Callable[[Path], Callable[[bytes], object]]
    """What reads an input, given a scratch folder."""
    seeds: Callable[[], Sequence[bytes]]
    """Valid inputs."""
    hostile: Callable[[], Sequence[bytes]]
    """Inputs made to hurt."""
    mutate: mutate.Mutator
    """Changes an input."""
    share: int
    """Of the inputs of a whole run: less for slow parsers."""
    documented: tuple[type[Exception], ...] = (CginsError,)
    """What may come out."""
    together: bool = True
    """Whether hostile inputs are mutated further."""


def _file(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def _text_of(data: bytes) -> str:
    """Text of an input; half characters are among what is tried."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def _manifest(folder: Path) -> Callable[[bytes], object]:
    pack = folder / "pack"
    (pack / "blobs").mkdir(parents=True, exist_ok=True)
    for source, one in seeds.packs():
        for blob in store.blobs_of(one):
            shutil.copy(source / "blobs" / f"{blob.sha256}.safetensors", pack / "blobs")
    leaves = [torch.zeros(1)] * 64

    def parse(data: bytes) -> object:
        _file(pack, store.MANIFEST, data)
        reader = store.open_pack(pack)
        for trace in reader.pack.traces:
            for argument in trace.call.arguments:
                values.decode(argument.value, leaves)
            for storage in trace.storages:
                if storage.recipe is not None and storage.nbytes <= 2**16:
                    recipe.generate(storage, reader)
        return reader

    return parse


def reseal(rng: random.Random, data: bytes, some: Sequence[bytes]) -> bytes:
    """A changed manifest whose ids are again the digests of their traces, so that what follows is reached."""
    made = mutate.document(rng, data, some)
    if rng.random() < 0.2:
        return made
    try:
        tree = json.loads(made)
        for trace in tree["traces"]:
            trace["id"] = store.digest_of(trace)
        return json.dumps(tree).encode()
    except Exception:  # noqa: BLE001 - what has no traces, or no texts in them, has no ids
        return made


def _blob(folder: Path) -> Callable[[bytes], object]:
    (folder / "blobs").mkdir(exist_ok=True)
    for file in (folder / "blobs").iterdir():
        file.unlink()

    def parse(data: bytes) -> object:
        digest = hashlib.sha256(data).hexdigest()
        length = max(0, len(data) - 8 - int.from_bytes(data[:8], "little"))
        path = _file(folder / "blobs", f"{digest}.safetensors", data)
        try:
            # What the manifest says of its length: most often the truth.
            blob = Blob(sha256=digest, nbytes=4 if len(data) % 16 == 3 else length)
            return store.PackReader(folder, seeds.packs()[0][1]).read(blob)
        finally:
            path.unlink()

    return parse


def _profile(folder: Path) -> Callable[[bytes], object]:
    pack = seeds.packs()[0][1]
    return lambda data: profile.read(_file(folder, "profile.json", data), pack)


def _config(folder: Path) -> Callable[[bytes], object]:
    (folder / "traces").mkdir(exist_ok=True)
    (folder / "kernels").mkdir(exist_ok=True)
    for name in ("k.cpp", "k.cu", "kernels/add.cpp"):
        (folder / name).touch()

    return lambda data: load(_file(folder, "cgins.yaml", data))


def _collected(folder: Path, read: Callable[[Collector], object]) -> object:
    """What an importer makes of its source, thrown away."""
    out = folder / "out"
    try:
        with Collector(out, "full", "fuzz") as collector:
            read(collector)
            return collector.finish()
    finally:
        shutil.rmtree(out, ignore_errors=True)


def _gins(folder: Path) -> Callable[[bytes], object]:
    def parse(data: bytes) -> object:
        source = _file(folder, "p.json", data)
        args = Namespace(source=source, max_mib=MAX_MIB)
        return _collected(folder, lambda collector: gins.run(args, collector))

    return parse


def _expression(folder: Path) -> Callable[[bytes], object]:
    names = {"x": torch.ones(4, 4), "y": torch.arange(2.0)}

    def parse(data: bytes) -> object:
        evaluator = expressions.Evaluator(MAX_MIB, lambda _: "cpu")
        evaluator.names.update(names)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return evaluator.evaluate(_text_of(data))

    return parse


def _backendbench_line(folder: Path) -> Callable[[bytes], object]:
    def parse(data: bytes) -> object:
        head, _, args = _text_of(data).partition("\ncnt:")
        recorded = backendbench.Recorded(head.partition(": ")[2], args.partition(",")[2].strip(), 1)
        return backendbench._call(recorded, MAX_MIB, functional=len(data) % 2 == 0)

    return parse


def _backendbench(folder: Path) -> Callable[[bytes], object]:
    def parse(data: bytes) -> object:
        source = _file(folder, "ops.json" if data[:1] in (b"[", b"{") else "ops.txt", data)

        def read(collector: Collector) -> None:
            # The ops whose arguments torch itself checks: others end a process, whoever calls them.
            for op in ("aten.add.Tensor", "aten._softmax", "aten.cat", "aten.sum", "aten.zeros", "aten.ones"):
                args = Namespace(source=source, max_mib=MAX_MIB, device="cpu", functional=False, only=op)
                backendbench.run(args, collector)

        return _collected(folder, read)

    return parse


def _flashinfer(folder: Path) -> Callable[[bytes], object]:
    from safetensors.torch import save_file

    (folder / "blob").mkdir(exist_ok=True)
    save_file({"i": torch.ones(4, 8)}, folder / "blob" / "i.safetensors")
    if not (folder / "fifo").exists():
        os.mkfifo(folder / "fifo")

    def parse(data: bytes) -> object:
        try:
            found = json.loads(data)
            described = json.dumps(found["definition"]).encode()
        except (ValueError, RecursionError, TypeError, KeyError):
            found, described = {}, data
        definition = _file(folder, "d.json", described)
        line = {"definition": "gather", "workload": found.get("workload")}
        lines = _file(folder, "w.jsonl", json.dumps(line).encode())
        arguments = Namespace(source=folder, max_mib=MAX_MIB, device="cpu")

        def read(collector: Collector) -> None:
            (read_back,) = flashinfer.objects([flashinfer.read_json(definition)], definition, "it")
            flashinfer.text_of(read_back, "name")
            for _, workload in flashinfer._workloads(lines, collector):
                flashinfer.take(arguments, collector, read_back, workload, "torch.mul")

        return _collected(folder, read)

    return parse


def _kernelbench(folder: Path) -> Callable[[bytes], object]:
    def parse(data: bytes) -> object:
        text = kernelbench.read_text(_file(folder, "1_x.py", data))
        for name in references.constants(text):
            references.override(text, {name: 8}, "1_x.py")
        return references.module_name(text[:99])

    return parse


def _robustkbench(folder: Path) -> Callable[[bytes], object]:
    return lambda data: list(robustkbench._settings(_file(folder, "config_forward.json", data), "multi"))


def _refpy(folder: Path) -> Callable[[bytes], object]:
    def parse(data: bytes) -> object:
        if data[:1] in (b"{", b"["):
            return refpy.parse_dims(_text_of(data))
        return refpy._of_kernel(_file(folder, "k.cu", data), {"M": 8, "N": 8}, None, MAX_MIB)

    return parse


def _without_permission(folder: Path) -> Callable[[bytes], object]:
    """Every kind of source that is code, through the command, without --allow-code."""

    def parse(data: bytes) -> None:
        source = _file(folder, "1_x.py", data)
        for kind in (kind for kind in registry.IMPORTERS if registry.IMPORTERS[kind].runs_code):
            args = Namespace(kind=kind, source=source, allow_code=False, out=folder / "never")
            with suppress(RecordError):
                import_export.import_(args)
                raise AssertionError(f"{kind} was imported without --allow-code")
            assert not (folder / "never").exists()

    return parse


def _pairs(folder: Path) -> Callable[[bytes], object]:
    (folder / "pairs").mkdir(exist_ok=True)

    def parse(data: bytes) -> object:
        _file(folder / "pairs", "entry_0.pt", data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            args = Namespace(source=folder / "pairs", op=[], device="cpu")
            return _collected(folder, lambda collector: pt_files.run(args, collector))

    return parse


def _history(folder: Path) -> Callable[[bytes], object]:
    return lambda data: history_file.read(_file(folder, "history.jsonl", data))


def _frame(folder: Path) -> Callable[[bytes], object]:
    def parse(data: bytes) -> object:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        try:
            theirs.send(data[: 2**17])
            theirs.close()
            return Channel(ours).receive()
        finally:
            theirs.close()
            ours.close()

    return parse


def refit(rng: random.Random, data: bytes, some: Sequence[bytes]) -> bytes:
    """A changed frame, most often of the length that it announces."""
    if rng.random() < 0.2:
        return mutate.raw(rng, data, some)
    change = mutate.document if rng.random() < 0.6 else mutate.text
    return seeds.frame(change(rng, data[4:], [one[4:] for one in some if len(one) > 5]))


class _Sized(Buffer):
    """A sealed buffer of any length, which takes no memory until it is read."""

    def __init__(self, nbytes: int) -> None:
        super().__init__(os.memfd_create("fuzz"), nbytes)
        if 0 <= nbytes < 2**50:
            os.ftruncate(self.fileno(), nbytes)


def _tensors(folder: Path) -> Callable[[bytes], object]:
    def parse(data: bytes) -> object:
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            return None
        nbytes = found.get("nbytes") if isinstance(found, dict) else None
        nbytes = nbytes if isinstance(nbytes, int) and 0 <= nbytes < 2**63 else 24
        with _Sized(nbytes) as buffer:
            made = unpack(
                found.get("header") if isinstance(found, dict) else found,
                buffer,
                "meta" if nbytes > 2**20 else "cpu",
            )
        return [tensor.shape for tensor in made]

    return parse


def _schema(folder: Path) -> Callable[[bytes], object]:
    def parse(data: bytes) -> object:
        text, line = schema.locate(data.decode("utf-8", "replace"), Path("k.cpp"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = schema.parse(text, f"k.cpp:{line}")
        schema.prototype(found, workspace=True)
        schema.header(found, workspace=True, file="k.cpp", line=line)
        return schema.match(found, ["x", "input", "self", "k", "other", "xs", "ys"], "k.cpp")

    return parse


def _launch(folder: Path) -> Callable[[bytes], object]:
    default = schema.parse("f(Tensor x, int n) -> Tensor")

    def parse(data: bytes) -> object:
        text = data.decode("utf-8", "replace")
        launch_line.constants(text)
        try:
            found = schema.parse(schema.locate(text, Path("k.cu"))[0])
        except CginsError:
            found = default
        plan = launch_line.read(launch_line.locate(text, Path("k.cu")), found, "k.cu")
        plan.variants()
        return launch_line.prototypes(plan, found)

    return parse


def _launch_expression(folder: Path) -> Callable[[bytes], object]:
    facts = expression.TensorFacts("x", (4, 8), (8, 1), "float32", 4)
    known: dict[str, Any] = {"x": facts, "n": 2**40, "a": 1.5, "bias": None, "xs": [facts, facts], "s": "sum"}

    def parse(data: bytes) -> object:
        parsed = expression.parse(_text_of(data))
        expression.layout_names(parsed)
        expression.kind(parsed.tree, {"x": "tensor", "n": "int", "a": "float"})
        return expression.evaluate(parsed, known)

    return parse


def _text(read: Callable[[str], object]) -> Callable[[Path], Callable[[bytes], object]]:
    return lambda _: lambda data: read(data.decode("utf-8", "replace"))


def _log(text: str) -> object:
    found = diagnostics.summarize(text, ["/k/k.cpp"], ""), diagnostics.crashed(1, text)
    if "Unsupported gpu" not in text:  # which asks nvcc
        diagnostics.unknown_architecture(text)
    return found, diagnostics.not_the_source(127, text)


def _encoded(texts: Sequence[str]) -> Callable[[], list[bytes]]:
    return lambda: [text.encode("utf-8", "surrogatepass") for text in texts]


_document = mutate.mixed((8, mutate.document), (1, mutate.text), (1, mutate.raw))
_yaml = mutate.mixed((6, mutate.text), (1, mutate.raw))
_words = mutate.mixed((9, mutate.text), (1, mutate.raw))

PARSERS: tuple[Parser, ...] = (
    Parser(
        "pack manifest and recipes", _manifest, seeds.manifests, hostile.manifests,
        mutate.mixed((8, reseal), (1, mutate.text), (1, mutate.raw)), 12, together=False,
    ),
    Parser("pack blobs (safetensors)", _blob, seeds.blobs, hostile.blobs, mutate.mixed((2, mutate.raw), (1, mutate.text)), 12),
    Parser("profiles", _profile, seeds.profiles, lambda: hostile.any_json(seeds.profiles()[0]), _document, 10, together=False),
    Parser("cgins.yaml", _config, seeds.configs, hostile.configs, _yaml, 8, together=False),
    Parser("GinS programs", _gins, seeds.gins, lambda: [*hostile.gins(seeds.gins()[0]), *hostile.any_json(seeds.gins()[0])], _document, 2, together=False),
    Parser("torch expressions", _expression, _encoded(seeds.EXPRESSIONS), _encoded(hostile.EXPRESSIONS), _words, 18, _WHATEVER_TORCH_SAYS),
    Parser("BackendBench calls", _backendbench_line, _encoded(seeds.BACKENDBENCH), _encoded(hostile.BACKENDBENCH), _words, 16, _WHATEVER_TORCH_SAYS),
    Parser("BackendBench files", _backendbench, _encoded(seeds.BACKENDBENCH), _encoded(hostile.BACKENDBENCH), _words, 3, together=False),
    Parser("flashinfer-bench documents", _flashinfer, seeds.flashinfer, lambda: hostile.flashinfer(seeds.flashinfer()), mutate.document, 4, together=False),
    Parser("KernelBench files", _kernelbench, _encoded([seeds.REFERENCE]), _encoded(hostile.REFERENCES), _words, 5, together=False),
    Parser("robust-kbench configurations", _robustkbench, lambda: [json.dumps(seeds.CONFIGURATION).encode()], hostile.configurations, _document, 6, together=False),
    Parser("refpy sizes and kernels", _refpy, _encoded([seeds.KERNEL, '{"M": 64, "N": 32}']), _encoded(hostile.KERNEL), _words, 6, together=False),
    Parser("code without --allow-code", _without_permission, _encoded([seeds.REFERENCE]), _encoded(hostile.REFERENCES), _words, 4, together=False),
    Parser(".pt pairs", _pairs, seeds.pairs, hostile.pairs, mutate.archive, 3, together=False),
    Parser("report JSON", lambda _: lambda data: documents.load(SessionReport, data), seeds.reports, lambda: hostile.any_json(seeds.reports()[0]), _document, 12, (ValueError,), together=False),
    Parser("histories", _history, seeds.histories, lambda: hostile.any_json(seeds.histories()[0]), _document, 6, together=False),
    Parser("worker frames", _frame, seeds.frames, hostile.frames, refit, 22, (CginsError, EOFError), together=False),
    Parser("tensor headers", _tensors, seeds.headers, hostile.headers, mutate.document, 18, together=False),
    Parser("schema lines", _schema, _encoded(seeds.SCHEMAS), _encoded(hostile.SCHEMAS), _words, 14, together=False),
    Parser("launch lines", _launch, _encoded(seeds.LAUNCHES), _encoded(hostile.LAUNCHES), _words, 12, together=False),
    Parser("launch expressions", _launch_expression, _encoded(seeds.LAUNCH_EXPRESSIONS), _encoded(hostile.LAUNCH_EXPRESSIONS), _words, 26, (expression.ExpressionError,)),
    Parser("ptxas reports", _text(lambda text: resources.parse(text, "sm_90a")), _encoded(seeds.PTXAS), _encoded(hostile.PTXAS), _words, 11, (), together=False),
    Parser("cuobjdump listings", _text(lambda text: sass.count(text, "sm_90a")), _encoded(seeds.SASS), _encoded(hostile.SASS), _words, 11, (), together=False),
    Parser("compiler logs", _text(_log), _encoded(seeds.LOGS), _encoded(hostile.LOGS), _words, 11, (), together=False),
)  # fmt: skip


def parser_named(name: str) -> Parser:
    """The parser whose name begins so."""
    found = [parser for parser in PARSERS if parser.name.startswith(name)]
    if not found:
        raise SystemExit(f"no parser {name!r}; there are: {', '.join(parser.name for parser in PARSERS)}")
    return found[0]
