"""Proposals that are as they should be: written, read, published as a schema."""

from __future__ import annotations

import json
import stat
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pytest_cgins.config.load import TOP_KEYS
from pytest_cgins.core import documents
from pytest_cgins.core.errors import ProposalError
from pytest_cgins.core.verdict import Status
from pytest_cgins.regenerate import proposal
from pytest_cgins.regenerate.proposal import report as proposal_report
from pytest_cgins.regenerate.proposal.read import check_accepted
from tests.evaluations import make_evaluation
from tests.json_schemas import published_schema
from tests.regenerate import proposals
from tests.regenerate.proposals import NEW, OLD, PATH, YAML

GENERATED = YAML + "      - {name: fast, device: cpu, source: kernels/fast.cpp}\n"


def test_round_trip(tmp_path: Path) -> None:
    """What is written is read back, with old and new contents, the patch and the evidence."""
    written = proposals.write(tmp_path / "p")
    contents = proposal.read(tmp_path / "p")
    assert contents.proposal == written
    assert contents.base == {PATH: OLD.encode()}
    assert contents.files == {PATH: NEW.encode()}
    assert contents.evidence.seed == written.held_out_seed == 77
    assert contents.report_text == proposal_report.render(written, contents.evidence, contents.patch)
    assert written.id == "run-1/scale-cpu-cpp"
    again = "pytest --cgins --cgins-seed=77 --cgins-device=cpu -k scale"
    assert written.command == f"{again} --cgins-sandbox=on cgins.yaml"
    assert written.title == "Repair scale (cpp on cpu)"
    assert (written.cost.usd, written.cost.prompt_tokens, written.models) == (0.5, 2000, ("a-model",))
    assert [(one.status, one.message) for one in written.before] == [(Status.INCORRECT, "2 elements wrong")]


def test_price_is_unknown_if_one_answer_has_none(tmp_path: Path) -> None:
    """A sum of some prices would be told as the whole."""
    answers = [proposals.answer(), proposals.answer("other", None)]
    written = proposals.write(tmp_path / "p", answers=answers)
    assert written.cost.usd is None
    assert written.models == ("a-model", "other")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"a\r\nb\r\n", b"a\r\nc\r\n"),
        (b"a\nb", b"a\nc"),
        (b"\xef\xbb\xbfa\n", b"\xef\xbb\xbfb\n"),
        (b"caf\xe9\n", b"caf\xc3\xa9\n"),
    ],
)
def test_bytes_survive(tmp_path: Path, old: bytes, new: bytes) -> None:
    """Line ends, a missing last newline, a byte order mark, and an old file that is not UTF-8."""
    proposals.write(tmp_path / "p", base={PATH: old}, new={PATH: new})
    contents = proposal.read(tmp_path / "p")
    assert (contents.base, contents.files) == ({PATH: old}, {PATH: new})


def test_unchanged_files_are_left_out(tmp_path: Path) -> None:
    """Of all own sources of a kernel only those are proposed that differ; "" stands for a file that is not there."""
    base = {PATH: OLD, "kernels/scale.h": "same\n", "kernels/more.h": ""}
    new = {**base, PATH: NEW, "kernels/more.h": "x\n"}
    written = proposals.write(tmp_path / "p", base=base, new=new)
    assert sorted(written.files) == ["kernels/more.h", PATH]
    assert written.created == {"kernels/more.h"}


def test_older_proposal_is_replaced(tmp_path: Path) -> None:
    """A run that is resumed writes its proposal again; nothing else is left in the folder above."""
    proposals.write(tmp_path / "p")
    proposals.write(tmp_path / "p", new={PATH: "other\n"})
    assert proposal.read(tmp_path / "p").files == {PATH: b"other\n"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["p"]


def test_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If writing breaks off, there is no folder that looks like a proposal."""

    def full(self: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        proposals.write(tmp_path / "p")
    assert list(tmp_path.iterdir()) == []


def test_others_may_read_it(tmp_path: Path) -> None:
    """The folder's mode is that of any new folder: the next step of a pipeline may be another user."""
    proposals.write(tmp_path / "p")
    (tmp_path / "plain").mkdir()
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("p", "plain")]
    assert modes[0] == modes[1]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"new": {PATH: OLD}}, "the candidate is what was there"),
        ({"new": {PATH: NEW, "../x.cpp": "x"}}, "paths are relative"),
        ({"new": {PATH: ""}}, "is empty"),
        ({"new": {PATH: "a\0b"}}, "zero byte"),
        ({"new": {PATH: b"\xff\xfe"}}, "not UTF-8 at byte 0"),
        ({"new": {PATH: "x" * (256 * 1024 + 1)}}, "at most 262144 are allowed"),
        ({"new": {f"k/{n}.cpp": "x" for n in range(33)}}, "more than 32 files"),
        ({"new": {"cgins.yaml": "version: 1"}}, "only where a new kernel is added"),
        ({"after": None}, "is INCORRECT"),
        ({"after": ()}, "has no case of scale-cpu-cpp that passed"),
    ],
)
def test_what_would_not_be_read_is_not_written(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    """The run is told at once, and no folder is left."""
    if "after" in changes:
        good = make_evaluation()
        bad = make_evaluation(Status.INCORRECT, signature="f32-9x9-0002")
        changes = {"after": proposals.accepted(*((good, bad) if changes["after"] is None else ()))}
    with pytest.raises(ProposalError, match=said) as error:
        proposals.write(tmp_path / "p", **changes)
    assert error.value.remedy
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("goal", ["repair", "generate", "optimise"])
def test_an_optimisation_has_no_undecided_case(tmp_path: Path, goal: str) -> None:
    """Evidence with a case in which it may be slower is neither written nor read; right is right in a noisy case."""
    target = proposals.target(goal=goal)
    good, noisy = (
        make_evaluation(Status.FASTER),
        make_evaluation(Status.INCONCLUSIVE, signature="f32-9x9-0002"),
    )
    if goal == "optimise":
        with pytest.raises(ProposalError, match=r"f32-9x9-0002 is INCONCLUSIVE"):
            check_accepted(target, "optimise", (good, noisy))
        after = proposals.accepted(good, noisy)
        with pytest.raises(ProposalError, match=r"f32-9x9-0002 is INCONCLUSIVE"):
            proposals.write(tmp_path / "p", target=target, goal="optimise", after=after)
    else:
        check_accepted(target, goal, (good, noisy))  # type: ignore[arg-type]


def generated(folder: Path, **changes: Any) -> proposal.Proposal:
    known: dict[str, Any] = {
        "target": proposals.target(implementation="fast", goal="generate", statuses=()),
        "goal": "generate",
        "base": {"cgins.yaml": YAML},
        "new": {"cgins.yaml": GENERATED, "kernels/fast.cpp": NEW},
        "before": [],
        "after": proposals.accepted(make_evaluation(implementation="fast")),
    }
    return proposals.write(folder, **known | changes)


def test_new_kernel_may_enter_itself(tmp_path: Path) -> None:
    """`generate` adds an implementation to cgins.yaml; comments and order may change."""
    written = generated(tmp_path / "p")
    assert written.title == "Add scale (fast on cpu)"
    assert proposal.read(tmp_path / "p").base == {"cgins.yaml": YAML.encode()}
    commented = {"cgins.yaml": "# kernels\n" + GENERATED, "kernels/fast.cpp": NEW}
    generated(tmp_path / "p", new=commented)


SECTIONS = {
    "traces": "[traces/tiny, ../shared/packs, /data/packs]",
    "gate": "{fail_on: inconclusive, baseline: origin/main}",
    "pull_request": "{reviewers: [ada], labels: [cgins]}",
    "models": "{net: {make: 'models.net:make', gate: {catch: 9%}}}",
}
PROVIDERS = (
    "{provider: openai, model: a}",
    "{provider: compatible, base_url: 'http://localhost:1/v1', model: a, runs: ../runs}",
    "{provider: replay, path: conversations}",
    "{provider: exchange, path: /data/hand, runs: runs}",
    "{provider: exchange}",
)


@pytest.mark.parametrize("llm", PROVIDERS)
def test_new_kernel_leaves_whatever_the_file_says(tmp_path: Path, llm: str) -> None:
    """A file with all sections, and an entry whose sources and flags name folders in and out of the project."""
    sections = {"version": "1", **SECTIONS, "llm": llm}
    assert {*sections, "kernels"} == set(TOP_KEYS)
    entry = "{name: cpp, device: cpu, sources: [kernels/scale.cpp, ../shared/rows.cpp], flags: [-Iinclude, -I, ../shared]}"
    old = "".join(f"{key}: {value}\n" for key, value in sections.items())
    old += "kernels:" + YAML.partition("kernels:")[2]
    old = old.replace("{name: cpp, device: cpu, source: kernels/scale.cpp}", entry)
    new = old + "      - {name: fast, device: cpu, source: kernels/fast.cpp}\n"
    files = {"cgins.yaml": new, "kernels/fast.cpp": NEW}
    generated(tmp_path / "p", base={"cgins.yaml": old}, new=files)
    for wanted, other in ((llm, "{provider: gemini, model: mine}"), ("../shared/rows.cpp", "../rows.cpp")):
        changed = {**files, "cgins.yaml": new.replace(wanted, other)}
        with pytest.raises(ProposalError, match="changes more than scale-cpu-fast"):
            generated(tmp_path / "q", base={"cgins.yaml": old}, new=changed)


NO_ENTRY = r"cgins\.yaml: is not among the files, and scale-cpu-fast is new"
FILES = {"cgins.yaml": GENERATED, "kernels/fast.cpp": NEW}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"new": {**FILES, "cgins.yaml": GENERATED.replace("name: cpp,", "name: cpp, defines: {WRONG: 1},")}}, "changes more than"),
        ({"new": {**FILES, "cgins.yaml": GENERATED.replace("traces/tiny", "traces/other")}}, "changes more than"),
        ({"new": {**FILES, "cgins.yaml": GENERATED.replace("op: torch.nn.functional.gelu", "op: torch.nn.functional.gelu\n    tolerance: {rtol: 1, atol: 1}")}}, "changes more than"),
        ({"new": {**FILES, "cgins.yaml": GENERATED.replace("version: 1", "version: 1\ngate: {fail_on: never}")}}, "changes more than"),
        ({"new": {**FILES, "cgins.yaml": GENERATED.replace("version: 1", "version: 1\npull_request: {reviewers: [mallory]}")}}, "changes more than"),
        ({"new": {**FILES, "cgins.yaml": GENERATED.replace("name: fast", "name: slow")}}, "has no scale-cpu-fast"),
        ({"new": {**FILES, "cgins.yaml": GENERATED.replace("kernels/fast.cpp", "kernels/elsewhere.cpp")}}, "is not a source of"),
        ({"new": {**FILES, "cgins.yaml": "kernels: &a [*a]"}}, "cgins.yaml"),
        ({"new": {**FILES, "conf/cgins.yaml": GENERATED}}, "only where a new kernel"),
        # Without the entry nothing says that the files are the kernel's: new ones could be put anywhere.
        ({"base": {}, "new": {"src/pkg/plugins/more.py": "import os\n"}}, NO_ENTRY),
        ({"base": {}, "new": {"hubconf.py": "import os\n"}}, NO_ENTRY),
        ({"new": {"cgins.yaml": GENERATED.replace("kernels/fast", "Kernels/scale"), "Kernels/scale.cpp": NEW}},
         r"Kernels/scale\.cpp and kernels/scale\.cpp are one file where"),
        ({"base": {"cgins.yaml": YAML, "kernels/fast.cpp": OLD}}, r"kernels/fast\.cpp: already exists"),
    ],
)  # fmt: skip
def test_new_kernel_may_change_no_more(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    """Other entries and files, tolerances, traces and the gate are not a candidate's to change."""
    with pytest.raises(ProposalError, match=said):
        generated(tmp_path / "p", **changes)


def test_new_kernel_has_no_settings_of_its_own(tmp_path: Path) -> None:
    """A kernel that was not in the file at all cannot bring a tolerance with it."""
    entry = "  fresh:\n    op: torch.nn.functional.gelu\n    source: kernels/fast.cpp\n"
    target = proposals.target(kernel="fresh", implementation="cpp", goal="generate")
    after = proposals.accepted(make_evaluation(kernel="fresh"))
    for settings, fine in (("", True), ("    tolerance: {rtol: 1, atol: 1}\n", False)):
        new = {"cgins.yaml": YAML + entry + settings, "kernels/fast.cpp": NEW}
        if fine:
            generated(tmp_path / "p", target=target, after=after, new=new)
            continue
        with pytest.raises(ProposalError, match="fresh has settings of its own"):
            generated(tmp_path / "q", target=target, after=after, new=new)


@pytest.mark.parametrize(
    "settings",
    [
        "gate: {fail_on: never}\n", "gate: {baseline: none}\n", "pull_request: {reviewers: [mallory]}\n",
        "llm: {provider: ollama, model: other}\n",
    ],
)  # fmt: skip
def test_a_file_that_is_new_has_no_settings(tmp_path: Path, settings: str) -> None:
    """Where the project has no cgins.yaml yet, the one that comes names traces and its kernel, and nothing else."""
    text = (
        YAML.partition("kernels:")[0]
        + "kernels:\n  fresh:\n    op: torch.nn.functional.gelu\n    source: kernels/fast.cpp\n"
    )
    target = proposals.target(kernel="fresh", implementation="cpp", goal="generate")
    known = {"target": target, "after": proposals.accepted(make_evaluation(kernel="fresh")), "base": {}}
    generated(tmp_path / "p", **known, new={"cgins.yaml": text, "kernels/fast.cpp": NEW})
    new = {"cgins.yaml": text + settings, "kernels/fast.cpp": NEW}
    with pytest.raises(ProposalError, match=r"cgins\.yaml: has settings of its own"):
        generated(tmp_path / "q", **known, new=new)


def test_published_schema_is_current_and_fits(tmp_path: Path) -> None:
    """The packaged schema is that of the dataclass, and accepts what is written."""
    published = files("pytest_cgins") / "schemas" / f"proposal-{proposal.PROPOSAL_VERSION}.json"
    assert json.loads(published.read_text(encoding="utf-8")) == published_schema(proposal.Proposal)
    written = proposals.write(tmp_path / "p")
    jsonschema.Draft202012Validator(published_schema(proposal.Proposal)).validate(
        documents.dump_python(written)
    )
