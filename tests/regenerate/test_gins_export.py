"""A run in the layout of GinS."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins import record
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.regenerate.gins import export
from tests.evaluations import make_evaluation
from tests.regenerate import journals


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack with two calls of gelu, one of them by keyword, and one of softmax; and one without values."""
    folder = tmp_path_factory.mktemp("packs")
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))

    def model() -> None:
        torch.nn.functional.gelu(x)
        torch.nn.functional.gelu(x, approximate="tanh")
        torch.softmax(x, dim=1)
        torch.nn.functional.softmax(x, dim=0)

    ops = ["torch.nn.functional.gelu", "torch.softmax", "torch.nn.functional.softmax"]
    with record(folder / "tiny", ops=ops):
        model()
    with record(folder / "empty", ops=["torch.sin"], tier="shapes"):
        torch.sin(x)
    return folder


@pytest.fixture
def config(tmp_path: Path, packs: Path) -> Path:
    for name in ("tiny", "empty"):
        shutil.copytree(packs / name, tmp_path / "traces" / name)
    file = tmp_path / "cgins.yaml"
    file.write_text("version: 1\ntraces: [traces/tiny, traces/empty]\nkernels: {}\n")
    return file


def load(file: Path) -> Any:
    return torch.load(file, weights_only=True)


@pytest.mark.exam
def test_every_file_of_the_layout(config: Path, tmp_path: Path) -> None:
    """Inputs and gold of an op's first trace, a log an attempt, and the accepted source, under the names of GinS."""
    one = journals.target("gelu")
    run = journals.journal(config, one)
    wrong = make_evaluation(Status.INCORRECT, reason=Reason.REFERENCE_MISMATCH, message="far off")
    journals.attempt(run, one, 1, log="error: no ';'", trials=(journals.trial(wrong),))
    journals.attempt(run, one, 2, "accepted")
    journals.settle(run, one, "accepted", {"kernels/gelu.cpp": "right\r\n", "kernels/rows.h": "helper\n"})
    out = tmp_path / "out" / "deep"
    written = export.export(run, out)
    names = [file.name for file in written]
    assert names == [
        "gelu_inputs.pt",
        "gelu_gold.pt",
        "gelu_iter1.log",
        "gelu_iter2.log",
        "gelu_kernel_final.cpp",
        "gelu_kernel_final_kernels_rows.h",
    ]
    assert sorted(file.name for file in out.iterdir()) == sorted(names)
    saved = load(out / "gelu_inputs.pt")
    assert torch.equal(
        load(out / "gelu_gold.pt"), torch.nn.functional.gelu(*saved["args"], **saved["kwargs"])
    )
    assert (out / "gelu_kernel_final.cpp").read_bytes() == b"right\r\n"
    log = (out / "gelu_iter1.log").read_text()
    parts = (
        "Write torch.nn.functional.gelu.",
        "Here it is.",
        "failed (reference-mismatch)",
        "error: no ';'",
        "far off",
    )
    assert [log.index(part) for part in parts] == sorted(log.index(part) for part in parts)
    assert "accepted (ok)" in (out / "gelu_iter2.log").read_text()


@pytest.mark.exam
def test_names_do_not_collide(config: Path, tmp_path: Path) -> None:
    """Two ops with one last word have all of their words; two targets of one op have their own names.

    A call with keywords is saved as `args` and `kwargs`, as `cgins import pt` reads it.
    """
    both = (journals.target("gelu"), journals.target("gelu", implementation="cuda", device="cuda"))
    words = (journals.target("softmax"), journals.target("other", op="torch.softmax"))
    run = journals.journal(config, *both, *words)
    for number, one in enumerate((*both, *words)):
        journals.attempt(run, one)
        journals.settle(
            run, one, "accepted", {f"kernels/k{'.cu' if one.device == 'cuda' else '.cpp'}": str(number)}
        )
    out = tmp_path / "out"
    written = export.export(run, out)
    assert len(set(written)) == len(written) == 6 + 2 * 4
    texts = {file.name: file.read_text() for file in out.glob("*_kernel_final*")}
    assert texts == {
        "gelu-cpu-cpp_kernel_final.cpp": "0",
        "gelu-cuda-cuda_kernel_final.cu": "1",
        "torch_nn_functional_softmax_kernel_final.cpp": "2",
        "torch_softmax_kernel_final.cpp": "3",
    }
    assert {file.name for file in out.glob("*_inputs.pt")} == {
        "gelu_inputs.pt",
        "torch_nn_functional_softmax_inputs.pt",
        "torch_softmax_inputs.pt",
    }
    saved = load(out / "torch_nn_functional_softmax_inputs.pt")
    gold = load(out / "torch_nn_functional_softmax_gold.pt")
    assert saved["kwargs"]["dim"] == 0
    assert torch.equal(torch.nn.functional.softmax(*saved["args"], **saved["kwargs"]), gold)


@pytest.mark.exam
def test_what_failed_and_what_has_no_values(
    config: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The last source of what never became right is `_FAILED`, and what is not done has none.

    Traces without values, and ops that are not in the packs any more, have no pair, and that is told.
    """
    failed, open_ = journals.target("sin", op="torch.sin"), journals.target("relu")
    run = journals.journal(config, failed, open_)
    journals.attempt(run, failed)
    journals.attempt(run, open_)
    journals.settle(run, failed, "failed", {"kernels/sin.cu": "wrong"})
    written = export.export(run, tmp_path / "out")
    assert [file.name for file in written] == [
        "sin_iter1.log",
        "sin_kernel_final_FAILED.cu",
        "relu_iter1.log",
    ]
    assert written[1].read_text() == "wrong"
    told = capfd.readouterr().err
    assert "cgins: no sin_inputs.pt and sin_gold.pt: torch.sin " in told
    assert "was recorded with tier shapes" in told
    assert (
        "cgins: no relu_inputs.pt and relu_gold.pt: no trace of torch.nn.functional.relu is there any more"
        in told
    )


def test_long_prompts_are_cut(config: Path) -> None:
    """A log has the end of a prompt, and says where all of it is."""
    one = journals.target("gelu")
    run = journals.journal(config, one)
    attempt = journals.attempt(run, one)
    prompt = run.folder_of(one, 1) / "generator" / "prompt.md"
    prompt.write_text("a" * 10 + "b" * export.PROMPT_CHARACTERS)
    log = export.log(run, one, attempt)
    assert f"(the first 10 characters are in {prompt})\nb" in log
    assert "aab" not in log


def test_a_project_that_is_gone(config: Path, tmp_path: Path) -> None:
    """Without cgins.yaml nobody knows the traces: an error that names it."""
    run = journals.journal(config, journals.target("gelu"))
    config.unlink()
    with pytest.raises(ConfigError, match=r"cgins\.yaml"):
        export.export(run, tmp_path / "out")
