from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_cgins.core.errors import DiskError, PackError
from pytest_cgins.packs.store import MAX_JSON_DEPTH, PackWriter, blobs_of, digest_of, open_pack, seal
from pytest_cgins.recording.record import record


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack with recipes, blobs, masks, several outputs and a mutation."""
    folder = tmp_path_factory.mktemp("packs") / "original"
    with record(folder):
        F.linear(torch.randn(2, 6), torch.randn(3, 6), bias=torch.zeros(3))
        F.embedding(torch.tensor([1, 2]), torch.randn(4, 3))
        torch.relu_(torch.randn(4))
        torch.topk(torch.randn(3, 9), 2)
    return folder


@pytest.fixture
def pack(original: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(original, tmp_path / "copy"))


def edit(pack: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the manifest, and give every trace the id that its new content has."""
    document = json.loads((pack / "manifest.json").read_text())
    change(document)
    for trace in document["traces"]:
        trace["id"] = digest_of(trace)
    (pack / "manifest.json").write_text(json.dumps(document))


def a_blob(pack: Path) -> Path:
    return min((pack / "blobs").iterdir())


# ---- round trip ---------------------------------------------------------------------------------


def test_what_is_written_is_read(original: Path, tmp_path: Path) -> None:
    """A pack written again from what was read is the same, byte for byte."""
    reader = open_pack(original)
    with PackWriter(tmp_path / "again") as writer:
        for file in (original / "blobs").iterdir():
            blob = next(b for b in blobs_of(reader.pack) if b.sha256 == file.stem)
            assert writer.add(reader.read(blob)) == blob
        writer.commit(reader.pack)
    for file in original.rglob("*"):
        copy = tmp_path / "again" / file.relative_to(original)
        assert file.is_dir() or file.read_bytes() == copy.read_bytes()


def test_equal_bytes_are_one_file(tmp_path: Path) -> None:
    """Content-addressed: the second of two equal blobs costs nothing."""
    writer = PackWriter(tmp_path / "pack")
    with writer:
        first, second, other = writer.add(b"abc"), writer.add(b"abc"), writer.add(b"abd")
        assert first == second != other
        assert writer.read(first) == b"abc"
    assert list(tmp_path.iterdir()) == []


def test_a_manifest_is_one_line_a_trace(original: Path) -> None:
    """So that a diff shows which traces changed."""
    lines = (original / "manifest.json").read_text().splitlines()
    assert len(lines) == len(open_pack(original).pack.traces) + 2
    assert all(json.loads(line.rstrip(","))["id"] for line in lines[1:-1])


def test_enumerating_traces_imports_neither_torch_nor_numpy(original: Path) -> None:
    """pytest's own process reads packs."""
    code = (
        "import sys; from pytest_cgins.packs.store import open_pack\n"
        f"assert open_pack({str(original)!r}).pack.traces\n"
        "assert not {'torch', 'numpy', 'safetensors'} & set(sys.modules), 'imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_sixty_traces_open_within_50_ms(original: Path, tmp_path: Path) -> None:
    """The cost of collecting a pack, its validation included (processor time, best of five, imports done)."""
    reader = open_pack(original)
    sources = reader.pack.traces
    traces = [seal(replace(sources[i % 4], count=i + 1, signature=f"s-{i}", context=replace(
        sources[0].context, rng_seed=i))) for i in range(60)]  # fmt: skip
    with PackWriter(tmp_path / "sixty") as writer:
        for blob in blobs_of(reader.pack):
            writer.add(reader.read(blob))
        writer.commit(replace(reader.pack, traces=tuple(traces)))
    times = []
    for _ in range(5):
        start = time.process_time()
        open_pack(tmp_path / "sixty")
        times.append(time.process_time() - start)
    assert min(times) < 0.05


# ---- damage that names file and field -----------------------------------------------------------


def set_in(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        node: Any = document
        for part in path[:-1]:
            node = node[part]
        node[path[-1]] = value

    return change


LINEAR, EMBEDDING, TOPK = 1, 0, 3
"""Places in the manifest, which is ordered by op."""


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("version",), 3, "version: 3 was written by a newer pytest-cgins"),
        (("version",), "1", "version: '1' is not a schema version"),
        (("name",), "../../x", "name: '../../x' is not a plain name"),
        (("surprise",), 1, "surprise: Unexpected keyword argument"),
        (("traces", 0, "surprise"), 1, "traces[0].surprise"),
        (("traces", 1, "tensors", 0, "stride"), [6, 2], "traces[1].tensors[0].stride: shape (2, 6), stride (6, 2)"),
        (("traces", 1, "tensors", 0, "offset"), 2**62, "traces[1].tensors[0].shape: more than"),
        (("traces", 1, "tensors", 0, "shape"), [2**62, 2**62], "traces[1].tensors[0].shape: more than"),
        (("traces", 1, "tensors", 0, "shape"), [-1, 6], "traces[1].tensors[0]: "),
        (("traces", 1, "tensors", 0, "storage"), 9, "traces[1].tensors[0].storage: storage 9 is not among"),
        (("traces", 1, "tensors", 0, "dtype"), "object", "traces[1].tensors[0].dtype: 'object'"),
        (("traces", 1, "storages", 0, "nbytes"), 2**50, "traces[1].storages[0].nbytes: 1125899906842624"),
        (("traces", 1, "storages", 0, "nbytes"), 2**30, "traces[1].storages[0].nbytes: 1073741824, but its tensors"),
        (("traces", 1, "storages", 0, "recipe", "std"), -1.0, "traces[1].storages[0].recipe.low"),
        (("traces", 1, "storages", 0, "recipe", "seed"), 2**64, "traces[1].storages[0].recipe.seed"),
        (("traces", 1, "storages", 0, "recipe", "sha256"), "../x", "traces[1].storages[0].recipe.sha256"),
        (("traces", 1, "storages", 0, "recipe", "distribution"), "integer", "recipe.distribution: integer does not"),
        (("traces", 1, "storages", 0, "recipe"), None, "traces[1].storages[0]: in tier recipe"),
        (("traces", 0, "storages", 0, "blob", "sha256"), "../" * 21 + "x", "traces[0].storages[0].blob"),
        (("traces", 0, "storages", 0, "blob", "nbytes"), 7, "traces[0].storages[0].blob.nbytes: 7 differs"),
        (("traces", 1, "call", "arguments", 0, "value", "value"), 3, "arguments[0].value.value: tensor 3 is not"),
        (("traces", 1, "call", "arguments", 0, "value", "value"), True, "traces[1].call.arguments[0].value"),
        (("traces", 1, "call", "op"), "os system", "traces[1].call.op: 'os system'"),
        (("traces", 1, "count"), 0, "traces[1].count: 0 is not positive"),
        (("traces", 1, "count"), 10**400, "traces[1].count: 1000"),
        (("traces", 1, "signature"), "a/b", "traces[1].signature: 'a/b'"),
        (("traces", 1, "origin", "device"), "cpu;rm", "traces[1].origin.device: 'cpu;rm'"),
        (("traces", 1, "context", "default_dtype"), "int64", "traces[1].context.default_dtype: 'int64'"),
        (("traces", 1, "gold"), None, "traces[1].gold: a pack of tier recipe must have gold"),
        (("traces", 1, "gold", "outputs", "value"), 5, "traces[1].gold.outputs.value: tensor 5"),
        (("traces", 1, "gold", "tensors", 0, "sample_count"), 1, "gold.tensors[0].sample_count: 1 of 6 elements"),
        (("traces", 1, "gold", "tensors", 0, "sample_count"), 7, "gold.tensors[0].sample_count: 7 of 6 elements"),
        (("traces", 1, "gold", "tensors", 0, "statistics", "numel"), 7, "gold.tensors[0].statistics.numel: 7"),
        (("traces", 1, "gold", "aliases"), [[0, 8]], "traces[1].gold.aliases[0]: (0, 8) is out of range"),
        (("traces", 1, "replay"), "perhaps", "traces[1].replay: Input should be 'bitwise', 'derived'"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named(pack: Path, path: tuple[Any, ...], value: Any, field: str) -> None:
    """One error with file, field and value, whatever the field; ids do not mask it."""
    edit(pack, set_in(*path, value=value))
    with pytest.raises(PackError) as caught:
        open_pack(pack)
    assert field in str(caught.value)
    assert str(caught.value).startswith(f"{pack / 'manifest.json'}: ")
    assert caught.value.remedy


def test_content_that_does_not_fit_its_id_is_refused(pack: Path) -> None:
    """A number edited by hand is noticed."""
    text = (pack / "manifest.json").read_text()
    assert '"grad_enabled":true' in text
    (pack / "manifest.json").write_text(text.replace('"grad_enabled":true', '"grad_enabled":false', 1))
    with pytest.raises(PackError, match=r"traces\[0\]\.id: \w{16} is not the digest of its content"):
        open_pack(pack)


def test_a_trace_twice_is_refused(pack: Path) -> None:
    """Ids and (op, signature) are unique."""
    edit(pack, lambda document: document["traces"].append(document["traces"][0]))
    with pytest.raises(PackError, match=r"traces\[4\]\.id: \w+ is there twice"):
        open_pack(pack)


def test_nesting_is_limited(pack: Path) -> None:
    """Brackets without end are refused before they are parsed; brackets in strings do not count."""
    (pack / "manifest.json").write_text("[" * 100_000)
    with pytest.raises(PackError, match=f"nested 100000 deep; {MAX_JSON_DEPTH} is allowed"):
        open_pack(pack)
    (pack / "manifest.json").write_text('{"version": 1, "x": "%s"}' % ("[" * 1000))
    with pytest.raises(PackError, match="name: "):
        open_pack(pack)


def test_size_is_limited(pack: Path) -> None:
    """A sparse file of a gigabyte is refused unread."""
    os.truncate(pack / "manifest.json", 2**30)
    with pytest.raises(PackError, match="has 1073741824 bytes; at most 67108864 are allowed"):
        open_pack(pack)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "is not JSON"),
        (b"\xff\xfe{", "is not JSON"),
        (b"[]", "None is not a schema"),
        (b'{"version":', "JSON"),
    ],
)
def test_a_manifest_that_is_no_pack(pack: Path, text: bytes, says: str) -> None:
    """Empty, binary, truncated, or JSON of another kind."""
    (pack / "manifest.json").write_bytes(text)
    with pytest.raises(PackError, match=says):
        open_pack(pack)


def test_a_folder_without_pack(tmp_path: Path) -> None:
    """The path that was looked for is named."""
    with pytest.raises(PackError, match=r"nowhere/manifest\.json: is not there"):
        open_pack(tmp_path / "nowhere")


# ---- blobs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda b: b[:-1], "which are not a header and the"),
        (lambda b: b + b"\0", "which are not a header and the"),
        (lambda b: (2**63).to_bytes(8, "little") + b[8:], "which are not a header and the"),
        (lambda b: b.replace(b"U8", b"I8"), "header: is not"),
        (lambda b: b.replace(b'"data"', b'"atad"'), "header: is not"),
        (lambda b: b[:8] + b"{" * (len(b) - 8), "header: is not"),
        (lambda b: b"", "has 0 bytes"),
    ],
)
def test_a_blob_of_another_form_is_refused_at_opening(pack: Path, change, says: str) -> None:
    """Length and safetensors header are checked for all blobs before anything is read."""
    blob = a_blob(pack)
    blob.write_bytes(change(blob.read_bytes()))
    with pytest.raises(PackError, match=says) as caught:
        open_pack(pack)
    assert str(blob) in str(caught.value)


def test_a_blob_with_other_content_is_refused_when_read(pack: Path) -> None:
    """One flipped bit in the data is found by its sha256."""
    blob = a_blob(pack)
    content = bytearray(blob.read_bytes())
    content[-1] ^= 1
    blob.write_bytes(content)
    with pytest.raises(PackError, match=f"{blob.name}: its content has sha256"):
        open_pack(pack).verify()


def test_a_missing_blob_is_named(pack: Path) -> None:
    """The file that is not there."""
    blob = a_blob(pack)
    blob.unlink()
    with pytest.raises(PackError, match=f"{blob.name}: is not there"):
        open_pack(pack)


@pytest.mark.parametrize("which", ["manifest", "blob", "folder of blobs"])
def test_symbolic_links_are_refused(pack: Path, tmp_path: Path, which: str) -> None:
    """A pack does not lead out of its folder."""
    file = {"manifest": pack / "manifest.json", "blob": a_blob(pack), "folder of blobs": pack / "blobs"}[
        which
    ]
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PackError, match=str(file)):
        open_pack(pack)


def test_a_fifo_does_not_hang(pack: Path) -> None:
    """A named pipe in place of the manifest is refused at once."""
    (pack / "manifest.json").unlink()
    os.mkfifo(pack / "manifest.json")
    with pytest.raises(PackError, match="is not a regular file"):
        open_pack(pack)


# ---- robustness ---------------------------------------------------------------------------------


def damaged(content: bytes, data: st.DataObject) -> bytes:
    """Some bytes overwritten, removed, inserted, or the end cut off."""
    result = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, max(0, len(result) - 1)))
        kind = data.draw(st.sampled_from(["flip", "digit", "delete", "insert", "truncate"]))
        if kind == "flip" and result:
            result[position] ^= 1 << data.draw(st.integers(0, 7))
        elif kind == "digit" and result:
            result[position] = data.draw(st.sampled_from(list(b'0123456789-.eE"[]{},:')))
        elif kind == "delete":
            del result[position : position + data.draw(st.integers(1, 9))]
        elif kind == "insert":
            result[position:position] = data.draw(st.binary(min_size=1, max_size=4))
        elif kind == "truncate":
            del result[position:]
    return bytes(result)


@pytest.mark.exam
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_file_is_a_pack_error_or_changes_nothing(original: Path, tmp_path: Path, data) -> None:
    """Whatever happens to bytes of a pack, it reads as before, but for its labels, or raises PackError."""
    before = open_pack(original).pack
    files = sorted(file for file in original.rglob("*") if file.is_file())
    file = data.draw(st.sampled_from(files + [original / "manifest.json"] * len(files)))
    folder = tmp_path / "damaged"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(original, folder)
    target = folder / file.relative_to(original)
    target.write_bytes(damaged(file.read_bytes(), data))
    try:
        reader = open_pack(folder)
        reader.verify()
    except PackError:
        return
    assert [trace.id for trace in reader.pack.traces] == [trace.id for trace in before.traces][
        : len(reader.pack.traces)
    ]
    for old, new in zip(before.traces, reader.pack.traces, strict=False):
        assert (new.call, new.tensors, new.storages) == (old.call, old.tensors, old.storages)
        assert (new.context, new.gold) == (old.context, old.gold)


@pytest.mark.exam
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_json_in_place_of_a_field_is_refused_or_harmless(pack: Path, original: Path, data) -> None:
    """A well-formed manifest with one value replaced opens, or raises PackError; nothing else."""
    document = json.loads((original / "manifest.json").read_text())
    node, key = document, "traces"
    while data.draw(st.integers(0, 9)) and isinstance(node[key], (dict, list)) and node[key]:
        node = node[key]
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
    node[key] = data.draw(
        st.one_of(
            st.none(), st.booleans(), st.integers(), st.integers(2**31, 2**80), st.floats(), st.text(max_size=80),
            st.just([]), st.just({}), st.lists(st.integers(-3, 2**70), max_size=70), st.just([[[[]]]]),
        )
    )  # fmt: skip
    for trace in document["traces"] if isinstance(document["traces"], list) else []:
        if isinstance(trace, dict):
            trace["id"] = digest_of(trace)
    (pack / "manifest.json").write_text(json.dumps(document))
    with contextlib.suppress(PackError):
        open_pack(pack).verify()


# ---- while recording ----------------------------------------------------------------------------


def test_a_discarded_blob_is_gone_and_can_be_added_again(tmp_path: Path) -> None:
    """Its bytes are written anew when they come once more."""
    with PackWriter(tmp_path / "pack") as writer:
        blob = writer.add(b"abc")
        writer.discard(blob)
        with pytest.raises(PackError, match="is not there"):
            writer.read(blob)
        assert writer.add(b"abc") == blob
        assert writer.read(blob) == b"abc"


@pytest.mark.parametrize("ops", [None, ["torch.nn.functional.gelu"]])
def test_a_full_disk_ends_the_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ops: list[str] | None
) -> None:
    """No call is at fault and none is left out in silence: an error with folder, size and remedy, and no pack."""

    def full(path: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def body() -> None:
        with record(tmp_path / "pack", ops, tier="full"):
            monkeypatch.setattr(Path, "write_bytes", full)
            F.gelu(torch.ones(3))

    says = r"pack cannot be written: No space left on device, with 0\.0 MiB to go into"
    with pytest.raises(DiskError, match=says) as caught:
        body()
    assert "free space, record to another disk (--out), or keep less: --tier recipe" in caught.value.remedy
    assert list(tmp_path.iterdir()) == []
