"""`cgins methods` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_cgins.app import cli
from pytest_cgins.regenerate.methods import memory_file, registry
from tests.regenerate.methods.test_choice import tried
from tests.regenerate.methods.test_registry import GOOD

LISTING = Path(__file__).parent / "listings" / "sm_90a.sass"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    """All, or those of an axis, device, language, workload and capability; as JSON with all fields."""
    assert cli.main(["methods", "ls"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{len(registry.shipped())} methods"
    options = [
        "--axis",
        "compute",
        "--device",
        "cuda",
        "--family",
        "matmul",
        "--language",
        "cute",
        "--capability",
        "90",
    ]
    assert cli.main(["methods", "ls", *options]) == 0
    printed = capsys.readouterr().out
    assert "wgmma " in printed
    assert "sm_90-90" in printed
    assert "tcgen05" not in printed
    assert "vector-access" not in printed
    assert cli.main(["methods", "ls", "--device", "cpu", "--json"]) == 0
    assert {one["device"] for one in json.loads(capsys.readouterr().out)} == {"cpu"}


def test_show(capsys: pytest.CaptureFixture[str]) -> None:
    """One method with everything, and a misspelt one with the nearest."""
    assert cli.main(["methods", "show", "fp8-tensor-cores"]) == 0
    printed = capsys.readouterr().out
    assert "fp8-tensor-cores: fp8 products\naxis compute, priority 2, sm_89+, cuda, triton, cute\n" in printed
    assert r"  sm_90 to sm_99: any of QGMMA\." in printed
    assert "(higher is better)" in printed
    assert cli.main(["methods", "show", "register-tile"]) == 0
    assert "SASS: none, so machine code cannot tell" in capsys.readouterr().out
    assert cli.main(["methods", "show", "wgma"]) == 2
    assert 'did you mean "wgmma"' in capsys.readouterr().err


def test_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A right file is counted, a wrong one told by line."""
    file = tmp_path / "mine.yaml"
    file.write_text(GOOD + GOOD.split("methods:\n")[1].replace("my-trick", "wgmma"))
    assert cli.main(["methods", "check", str(file)]) == 0
    assert capsys.readouterr().out == "2 valid methods: wgmma, my-trick\nreplaces built-in methods: wgmma\n"
    assert cli.main(["methods", "show", "my-trick", "--file", "mine.yaml"]) == 0
    assert "my-trick: A trick" in capsys.readouterr().out
    file.write_text(GOOD.replace("axis: memory", "axis: speed"))
    assert cli.main(["methods", "check", str(file)]) == 2
    assert 'mine.yaml:6: "axis" in method "my-trick" is "speed"' in capsys.readouterr().err


def test_offer_and_choice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A round by hand: print the offers, answer, and have the answer checked."""
    memory_file.remember(tmp_path / ".cgins" / "methods.json", [tried("wgmma")])
    options = ["--kernel", "mm", "--device-name", "NVIDIA H200", "--capability", "90", "--family", "matmul"]
    options += ["--dtype", "float16", "--gap", "compute=0.8", "--gap", "memory=0.3", "--gap", "latency=0.05"]
    assert cli.main(["methods", "offer", *options, "--metric", "share_of_bandwidth=0.9"]) == 0
    printed = capsys.readouterr()
    assert "- `tensor-core-mma`" in printed.out
    assert "- `wgmma`: ineffective in round 1 of run r1" in printed.out
    assert printed.err == "A run would stop here: near its peak: 90% of the device's bandwidth\n"
    answer = tmp_path / "answer.md"
    answer.write_text('```json\n{"picks": [{"method": "tensor-core-mma", "why": "idle"}]}\n```\n')
    assert cli.main(["methods", "choice", str(answer), *options]) == 0
    assert capsys.readouterr().out == "tensor-core-mma: breaks no rule\n"
    answer.write_text('{"picks": [{"method": "wgmma", "why": "idle"}]}')
    assert cli.main(["methods", "choice", str(answer), *options]) == 1
    assert capsys.readouterr().out == (
        "not-again: wgmma was ineffective in round 1 of run r1: choose another\n"
    )


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (["--gap", "memmory=0.4"], '--gap "memmory" is not known\n→ did you mean "memory"?'),
        (["--gap", "memory=much"], '--gap memory is "much"\n→ write --gap memory=0.5'),
        (
            ["--gap", "memory=2"],
            "--gap: the gap of memory is 2.0: it must be from 0 to 1\n→ write --gap memory=0.4",
        ),
        (["--metric", "speed=1"], '--metric "speed" is not known\n→ see cgins methods show'),
    ],
)
def test_wrong_numbers_are_told(option: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Name, value and remedy."""
    assert cli.main(["methods", "offer", *option]) == 2
    assert said in capsys.readouterr().err


def test_sass(capsys: pytest.CaptureFixture[str]) -> None:
    """Present methods with their instructions; 1 where one that was asked for is not there, or cannot be told."""
    assert cli.main(["methods", "sass", str(LISTING), "--arch", "sm_90a"]) == 0
    printed = capsys.readouterr().out
    assert "wgmma: present\n    HGMMA.64x8x16.F32" in printed
    assert " unknown" in printed.splitlines()[-1]
    asked = ["methods", "sass", str(LISTING), "--arch", "sm_90a", "--method"]
    assert cli.main([*asked, "wgmma"]) == 0
    capsys.readouterr()
    assert cli.main([*asked, "structured-sparse-mma"]) == 1
    assert "structured-sparse-mma: absent\n    nothing matches" in capsys.readouterr().out
    assert cli.main([*asked, "register-tile"]) == 1
    assert "register-tile: unknown (register-tile has no SASS signature)" in capsys.readouterr().out
    assert cli.main(["methods", "sass", "nowhere.sass", "--arch", "sm_90a"]) == 2
    assert "nowhere.sass: No such file" in capsys.readouterr().err


def test_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What became of methods, of all kernels or one."""
    assert cli.main(["methods", "results"]) == 0
    assert capsys.readouterr().out == "0 results in .cgins/methods.json\n"
    results = [
        tried("wgmma"),
        tried("tma-load", "effective", kernel="conv", slowdown_without=1.25, note="tile 128"),
    ]
    memory_file.remember(tmp_path / ".cgins" / "methods.json", results)
    assert cli.main(["methods", "results", "--kernel", "conv"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "conv (cuda, NVIDIA H200) tma-load: effective, SASS present, 1.250 times slower without it; round 1 of r1; tile 128",
        "1 result in .cgins/methods.json",
    ]
