import pytest

from pytest_cgins.core import documents
from pytest_cgins.core.case import Case
from pytest_cgins.core.trace import Blob, Recipe, Storage, TensorMeta, Value
from pytest_cgins.core.verdict import Reason, Status, Verdict
from tests.json_schemas import json_schema

META = {"dtype": "float32", "shape": (2, 3), "stride": (3, 1), "offset": 0, "storage": 0}


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "int", "value": "3"},
        {"kind": "int", "value": True},
        {"kind": "float", "value": 3},
        {"kind": "none", "value": 1},
        {"kind": "tensor", "value": 0, "items": (Value(kind="none"),)},
        {"kind": "dict", "items": (Value(kind="none"),)},
        {"kind": "list", "keys": ("a",)},
        {"kind": "slice", "items": (Value(kind="none"),)},
    ],
)
def test_impossible_values_are_refused(fields: dict[str, object]) -> None:
    """A node holds what its kind says and nothing else."""
    with pytest.raises(ValueError, match=r"node|slice"):
        Value(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [{"stride": (1,)}, {"shape": (-1, 3)}, {"offset": -1}, {"storage": -1}])
def test_impossible_tensors_are_refused(change: dict[str, object]) -> None:
    """Negative numbers and strides that do not fit the shape cannot be built."""
    with pytest.raises(ValueError, match=r"negative|differ"):
        TensorMeta(**{**META, **change})  # type: ignore[arg-type]


def test_a_blob_name_can_only_be_a_sha256() -> None:
    """Whatever could walk out of the folder is refused where the name is made."""
    for name in ("../../etc/passwd", "A" * 64, "0" * 63):
        with pytest.raises(ValueError, match="sha256"):
            Blob(sha256=name, nbytes=1)


def test_a_storage_has_one_content() -> None:
    """Blob and recipe exclude each other."""
    blob = Blob(sha256="0" * 64, nbytes=4)
    recipe = Recipe(distribution="normal", seed=1, sha256="0" * 64)
    with pytest.raises(ValueError, match="not both"):
        Storage(nbytes=4, dtype="float32", blob=blob, recipe=recipe)


def test_documents_round_trip() -> None:
    """What is written is read back equal."""
    meta = TensorMeta(**META)  # type: ignore[arg-type]
    assert documents.load(TensorMeta, documents.dump(meta)) == meta
    assert documents.load_python(TensorMeta, documents.dump_python(meta)) == meta


def test_a_document_with_a_byte_that_was_no_character_is_written_and_read() -> None:
    """A lone surrogate, as Python has it in a path, is spelled out."""
    verdict = Verdict(
        status=Status.INFRASTRUCTURE, reason=Reason.TOOL_MISSING, message="f\udcffold", numbers={}
    )
    for read in (
        documents.load(Verdict, documents.dump(verdict)),
        documents.load_python(Verdict, documents.dump_python(verdict)),
    ):
        assert read.message == "f\\udcffold"


@pytest.mark.parametrize(
    "text",
    [
        '{"status": "PASSED"}',
        '{"status":"FINE","reason":"ok","message":"","numbers":{}}',
        "[]",
        "{",
        '{"x":1}',
    ],
)
def test_documents_refuse_what_the_schema_does_not_have(text: str) -> None:
    """Missing fields, unknown keys, unknown statuses and broken JSON are ValueErrors."""
    with pytest.raises(ValueError, match="validation error"):
        documents.load(Verdict, text)


def test_every_field_is_described_in_the_schema() -> None:
    """The docstring under each field becomes its description."""
    properties = json_schema(Case)["properties"]
    assert properties
    assert all(field["description"] for field in properties.values())


def test_case_name_has_kernel_device_pack_and_signature() -> None:
    """The device is not doubled when the implementation is named after it."""
    fields = {
        "kernel": "layer_norm", "op": "o", "pack": "distilbert", "pack_path": "/p", "trace_id": "i",
        "signature": "f32-8x128x768-1b9c", "dtype": "float32",
    }  # fmt: skip
    triton = Case(implementation="triton", device="cuda:0", **fields)
    assert triton.name == "layer_norm/cuda-triton/distilbert/f32-8x128x768-1b9c"
    assert Case(implementation="cuda", device="cuda:0", **fields).name.split("/")[1] == "cuda"
