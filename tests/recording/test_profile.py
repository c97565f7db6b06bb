"""Profiles: what the traces of a pack cost on one device, kept beside its manifest."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pytest_cgins
from pytest_cgins.app import cli
from pytest_cgins.app.commands.profile import by_op
from pytest_cgins.core import documents
from pytest_cgins.core.errors import PackError
from pytest_cgins.packs.store import PackReader, open_pack
from pytest_cgins.recording import profile as profiles
from pytest_cgins.recording import profiler
from pytest_cgins.recording.profile import DeviceKernel, PackProfile
from pytest_cgins.recording.profiler import profile
from pytest_cgins.recording.record import record
from tests.json_schemas import json_schema


def body() -> None:
    x, weight = torch.randn(4, 8), torch.randn(16, 8)
    for _ in range(3):
        torch.nn.functional.linear(x, weight, torch.randn(16))
    torch.nn.functional.gelu(x)
    x.relu_()


@pytest.fixture
def reader(recorded, tmp_path: Path) -> PackReader:
    recorded(body, tier="full")
    return open_pack(tmp_path / "pack")


@pytest.fixture
def measured(reader: PackReader) -> PackProfile:
    made, failures = profile(reader, "cpu", reader.pack.traces)
    assert not failures
    return made


def edited(file: Path, change) -> None:
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


def test_every_trace_is_counted_and_timed(reader: PackReader, measured: PackProfile) -> None:
    """One entry a trace, with what reached the dispatcher, a time, and the number of recorded calls."""
    assert [one.trace for one in measured.traces] == [trace.id for trace in reader.pack.traces]
    by_op = {one.op.rpartition(".")[2]: one for one in measured.traces}
    assert [(call.name, call.count, call.view) for call in by_op["linear"].aten] == [
        ("aten.t.default", 1, True),
        ("aten.addmm.default", 1, False),
    ]
    assert [call.name for call in by_op["relu_"].aten] == ["aten.relu_.default"]
    assert by_op["linear"].calls == 3
    assert all(one.kernels == () for one in measured.traces)
    assert all(1e2 < one.median_ns_per_call < 1e8 and one.samples >= 5 for one in measured.traces)


def test_of_two_times_the_shorter_is_kept(reader: PackReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first call that loads and tunes says nothing of the others; that the times differ wildly is told."""
    times = iter([9000.0, 110.0, 100.0, 40.0, 100.0, 100.0])
    monkeypatch.setattr(profiler, "_samples_ns", lambda *_: [next(times)] * 5)
    made, _ = profiler.profile(reader, "cpu", reader.pack.traces)
    assert [one.median_ns_per_call for one in made.traces] == [40.0, 100.0, 100.0]
    assert [one.other_ns_per_call for one in made.traces] == [9000.0, None, None]


def test_shares_are_of_the_recorded_calls_time(measured: PackProfile) -> None:
    """Calls times nanoseconds, over their sum in the pack."""
    assert sum(one.time_share for one in measured.traces) == pytest.approx(1)
    first, *others = measured.traces
    for other in others:
        ratio = (first.calls * first.median_ns_per_call) / (other.calls * other.median_ns_per_call)
        assert first.time_share / other.time_share == pytest.approx(ratio)


def test_an_op_that_changes_its_input_is_timed_on_the_same_input_each_time(recorded, tmp_path: Path) -> None:
    """x *= 1e30 would be infinite after two calls: what is timed must be the recorded call."""
    seen: list[float] = []

    def watch(tensor: torch.Tensor, factor: float) -> torch.Tensor:
        seen.append(float(tensor.max()))
        return original(tensor, factor)

    original = torch.Tensor.mul_
    recorded(lambda: torch.ones(4).mul_(1e30), tier="full")
    reader = open_pack(tmp_path / "pack")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pytest_cgins.packs.forward.resolve", lambda op: watch)
        profile(reader, "cpu", reader.pack.traces)
    # The estimate of each of both measurements comes after a warm-up, and is no timed sample.
    assert len([value for value in seen if value != 1.0]) == 2
    assert len(seen) > 12


def test_a_profile_is_found_beside_the_manifest_and_replaced(
    reader: PackReader, measured: PackProfile
) -> None:
    """Written, read back, and one file a device and torch version."""
    first = profiles.write(reader.folder, measured)
    assert first.parent.name == "profiles"
    assert profiles.write(reader.folder, measured) == first
    other = replace(measured, device_name="NVIDIA H200", torch="2.11.0+cu130")
    assert profiles.write(reader.folder, other).name == "nvidia-h200-torch-2.11.0-cu130.json"
    assert profiles.read_all(open_pack(reader.folder)) == [measured, other]
    assert len(list(first.parent.iterdir())) == 2


def test_a_pack_without_profiles_has_none(reader: PackReader) -> None:
    """Nothing there is no error."""
    assert profiles.read_all(reader) == []


def test_recording_again_drops_profiles(reader: PackReader, measured: PackProfile) -> None:
    """They belong to the traces that were replaced."""
    profiles.write(reader.folder, measured)
    with record(reader.folder):
        body()
    assert profiles.read_all(open_pack(reader.folder)) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(version=2), "version: 2; this pytest-cgins reads version 1"),
        (lambda d: d.update(extra=1), "extra: Unexpected keyword argument"),
        (lambda d: d.pop("torch"), "torch: Field required"),
        (
            lambda d: d["traces"][0].update(trace="0" * 16),
            "traces[0].trace: '0000000000000000' is not a trace",
        ),
        (lambda d: d["traces"][0].update(op="torch.relu"), "is not a trace of this pack"),
        (lambda d: d["traces"].append(d["traces"][0]), "is there twice"),
        (lambda d: d["traces"][1].update(median_ns_per_call=-1.0), "traces[1].median_ns_per_call: -1.0"),
        (lambda d: d["traces"][0].update(calls=0), "traces[0].calls: 0 is not positive"),
        (lambda d: d["traces"][0].update(calls=10**400), "traces[0].calls: 1000"),
        (lambda d: d["traces"][0].update(time_share=7.0), "traces[0].time_share: 7.0 is not a share"),
        (lambda d: d["traces"].pop(), "their time shares sum to"),
        (lambda d: d["traces"][0]["aten"][0].update(count="1"), "traces[0].aten[0].count"),
    ],
)
def test_a_wrong_profile_is_refused_by_field(
    reader: PackReader, measured: PackProfile, change, message: str
) -> None:
    """The message names file and field, the remedy is to measure again."""
    file = profiles.write(reader.folder, measured)
    edited(file, change)
    with pytest.raises(PackError) as raised:
        profiles.read_all(reader)
    assert f"{file}: " in raised.value.what
    assert message in raised.value.what
    assert raised.value.remedy == "delete it, and run cgins profile again"


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 200, b"\xff\xfe", b"null", b"[]"])
def test_what_is_no_profile_is_a_pack_error(reader: PackReader, content: bytes) -> None:
    """Never another exception."""
    (reader.folder / "profiles").mkdir()
    (reader.folder / "profiles" / "x.json").write_bytes(content)
    with pytest.raises(PackError):
        profiles.read_all(reader)


def test_a_folder_in_place_of_a_profile_is_refused(reader: PackReader) -> None:
    """With the error of a damaged pack."""
    (reader.folder / "profiles" / "x.json").mkdir(parents=True)
    with pytest.raises(PackError, match="is not a regular file"):
        profiles.read_all(reader)


def test_profiles_behind_a_symbolic_link_are_refused(
    reader: PackReader, measured: PackProfile, tmp_path: Path
) -> None:
    """As blobs are: neither read nor written."""
    (tmp_path / "elsewhere").mkdir()
    (reader.folder / "profiles").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PackError, match="is a symbolic link"):
        profiles.read_all(reader)
    with pytest.raises(PackError, match="is a symbolic link"):
        profiles.write(reader.folder, measured)
    assert not list((tmp_path / "elsewhere").iterdir())


@given(st.text(max_size=40), st.text(max_size=20))
def test_file_names_are_plain(device_name: str, version: str) -> None:
    """Whatever a device calls itself, its file stays in the folder and is not hidden."""
    made = PackProfile(version=1, pack="x", device="cpu", device_name=device_name, torch=version, traces=())
    name = profiles.file_name(made)
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-")
    assert not name.startswith((".", "-"))


def test_a_trace_without_values_is_left_out(recorded, tmp_path: Path, capsys) -> None:
    """Tier shapes cannot be replayed: status 1, and the remedy."""
    recorded(body, tier="shapes")
    assert cli.main(["profile", str(tmp_path / "pack")]) == 1
    assert "record again with tier='recipe' or 'full'" in capsys.readouterr().err
    assert not (tmp_path / "pack" / "profiles").exists()


def test_the_command_prints_ops_by_cost(reader: PackReader, capsys) -> None:
    """A line an op with share, calls, time and ATen calls; views are left out; the file is named."""
    assert cli.main(["profile", str(reader.folder), "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert str(profiles.files_of(reader.folder)[0]) in out
    line = next(line for line in out.splitlines() if "functional.linear" in line)
    assert line.split()[1:6] == ["%", "torch.nn.functional.linear", "1", "3", line.split()[5]]
    assert line.rstrip().endswith("aten.addmm")


def test_kernels_are_shown_by_their_own_name(measured: PackProfile) -> None:
    """Instances of one template are one kernel, without namespaces; the longest running first."""
    names = {
        "void at::native::(anonymous namespace)::reduce<512, at::native::Sum>(float*, int)": 10.0,
        "void at::native::reduce<256>(float*)": 5.0,
        "sm80_xmma_gemm_f32f32": 12.0,
        "Memset (Device)": 1.0,
    }
    kernels = tuple(DeviceKernel(name=name, count=1, ns_per_call=ns) for name, ns in names.items())
    traces = tuple(replace(one, kernels=kernels) for one in measured.traces)
    table = by_op(replace(measured, device="cuda", traces=traces))
    assert list(table.columns[-1].cells) == ["reduce, sm80_xmma_gemm_f32f32 +1"] * 3


def test_the_command_prints_json(reader: PackReader, capsys) -> None:
    """A list of documents that fit the published schema."""
    assert cli.main(["profile", str(reader.folder), "--json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert documents.load_python(PackProfile, document) == profiles.read_all(reader)[0]
    schema = Path(pytest_cgins.__file__).parent / "schemas" / f"profile-{profiles.PROFILE_VERSION}.json"
    jsonschema.validate(document, json.loads(schema.read_text()))


def test_a_device_that_is_not_there_is_said(reader: PackReader, monkeypatch, capsys) -> None:
    """No silent fall-back to the CPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert cli.main(["profile", str(reader.folder), "--device", "cuda"]) == 2
    assert "torch sees no CUDA device here" in capsys.readouterr().err


def test_the_published_schema_is_current() -> None:
    """`make schemas` has been run."""
    file = Path(pytest_cgins.__file__).parent / "schemas" / f"profile-{profiles.PROFILE_VERSION}.json"
    assert json.loads(file.read_text()) == json_schema(PackProfile)


def test_verify_looks_at_profiles_too(reader: PackReader, measured: PackProfile, capsys) -> None:
    """A damaged one is a failure of the pack."""
    file = profiles.write(reader.folder, measured)
    assert cli.main(["traces", "verify", str(reader.folder)]) == 0
    edited(file, lambda document: document["traces"].pop())
    assert cli.main(["traces", "verify", str(reader.folder)]) == 1
    assert "their time shares sum to" in capsys.readouterr().err
