"""Reading cgins.yaml: what it means, and how every mistake is told."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_cgins.config import Tolerance, load, select
from pytest_cgins.core.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with sources and a trace folder, as the current folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("k/a.cpp", "k/b.cu", "k/c.py", "traces/bert/manifest.json"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


def read(folder: Path, text: str, **options: Any) -> Any:
    (folder / "cgins.yaml").write_text(text, encoding="utf-8")
    return load(folder / "cgins.yaml", **options)


def kernels(body: str) -> str:
    return f"version: 1\nkernels:\n  it:\n    op: torch.mul\n{body}"


def test_whole_file(folder: Path) -> None:
    """Every key arrives where it belongs; relative paths start at the file's folder."""
    config = read(
        folder,
        """\
version: 1
traces: [traces/bert]
kernels:
  layer_norm:
    op: torch.nn.functional.layer_norm
    tolerance: {rtol: 1e-3, atol: 0}
    implementations:
      - {name: fast, source: k/a.cpp, defines: {TILE: 128, NAME: x}, flags: [-Ik, -I, inc, -g]}
      - {source: k/b.cu, archs: [sm_80, sm_90a]}
      - {name: t, device: cuda, target: k.c:f, sources: [k/c.py]}
      - {name: ext, contract: torch-extension, sources: [k/a.cpp, k/b.cu], entry: run}
      - {target: k.c:f, interpret: true}
""",
    )
    assert (config.file, config.root) == (folder / "cgins.yaml", folder)
    assert config.traces == (folder / "traces/bert",)
    (kernel,) = config.kernels
    assert (kernel.name, kernel.op, kernel.line) == ("layer_norm", "torch.nn.functional.layer_norm", 4)
    assert kernel.tolerance == Tolerance(kind="explicit", rtol=1e-3, atol=0.0)
    assert [(i.name, i.device, i.contract, i.line) for i in kernel.implementations] == [
        ("fast", "cpu", "launcher", 8),
        ("cuda", "cuda", "launcher", 9),
        ("t", "cuda", "python", 10),
        ("ext", "cuda", "torch-extension", 11),
        ("python", "cpu", "python", 12),
    ]
    fast, cuda, triton, extension, interpreted = kernel.implementations
    assert fast.defines == (("TILE", "128"), ("NAME", "x"))
    assert fast.flags == (f"-I{folder}/k", f"-I{folder}/inc", "-g")
    assert cuda.archs == ("sm_80", "sm_90a")
    assert (triton.target, triton.sources) == ("k.c:f", (folder / "k/c.py",))
    assert (extension.entry, len(extension.sources)) == ("run", 2)
    assert interpreted.interpret


def test_a_text_in_the_place_of_the_file(folder: Path) -> None:
    """What a file is to have is read as if it had it: all paths begin at its folder, and errors name it."""
    file = folder / "cgins.yaml"
    text = (
        "version: 1\ntraces: [../packs]\nllm: {provider: exchange, path: hand}\nkernels:\n  gelu:\n"
        "    {op: torch.nn.functional.gelu, source: kernels/gelu.cpp, flags: [-Iinclude, -I, more]}\n"
    )
    file.write_text(text)
    known = load(file, require_traces=False, require_sources=False)
    file.unlink()
    assert load(file, require_traces=False, require_sources=False, content=text.encode()) == known
    for content, said in (
        (b"kernels: [", r"cgins\.yaml:\d+: not YAML"),
        (b"\xff", r"cgins\.yaml: not UTF-8 at byte 0"),
        (b"#" * (1 << 20) + b"#", r"cgins\.yaml: larger than 1 MiB"),
    ):
        with pytest.raises(ConfigError, match=said):
            load(file, content=content)


def test_short_form(folder: Path) -> None:
    """One implementation may stand directly under the kernel."""
    (kernel,) = read(folder, kernels("    source: k/a.cpp\n    tolerance: derived\n")).kernels
    assert [(i.name, i.device) for i in kernel.implementations] == [("cpp", "cpu")]
    assert kernel.tolerance == Tolerance()


def test_aliases(folder: Path) -> None:
    """Anchors and aliases are YAML, and work."""
    text = kernels(
        "    source: &s k/a.cpp\n    flags: [&f -g]\n  other: {op: torch.neg, source: *s, flags: [*f]}\n"
    )
    assert [kernel.name for kernel in read(folder, text).kernels] == ["it", "other"]


def test_traces_need_not_exist_for_a_build(folder: Path) -> None:
    """A build of kernels does not ask for traces."""
    text = "version: 1\ntraces: [traces/none]\nkernels: {it: {op: torch.mul, source: k/a.cpp}}\n"
    assert read(folder, text, require_traces=False).traces == (folder / "traces/none",)


def test_kernels_are_selected_by_name(folder: Path) -> None:
    """Those that are named, in that order, or all; a name that no kernel has is refused with the nearest."""
    config = read(folder, kernels("    source: k/a.cpp\n  other: {op: torch.neg, source: k/a.cpp}\n"))
    assert [kernel.name for kernel in select(config, ["other", "it"])] == ["other", "it"]
    assert select(config, []) == list(config.kernels)
    with pytest.raises(ConfigError, match=r'no kernel "othr"\n→ did you mean "other"\?'):
        select(config, ["othr"])


REFUSED = [
    # text, what, remedy
    ("kernels: {}", 'cgins.yaml:1: the file has no "version"', "add version: 1"),
    ("version: 2\nkernels: {}", "cgins.yaml:1: version 2 is newer than this pytest-cgins", "upgrade"),
    ("version: one", 'cgins.yaml:1: "version" in the file is text (one), not a whole number', "write"),
    ("version: 0", "cgins.yaml:1: there is no version 0", "version: 1"),
    ("version: 1", 'cgins.yaml:1: the file has no "kernels"', "add kernels"),
    ("version: 1\nkernel: {}", 'cgins.yaml:2: unknown key "kernel" in the file', '"kernels"'),
    ("version: 1\nplots: []", 'cgins.yaml:2: unknown key "plots" in the file', "known keys: version, traces"),
    ("version: 1\nversion: 1", 'cgins.yaml:2: key "version" of the file is there twice, first in line 1', "remove"),
    ("version: 1\nkernels: [a]", 'cgins.yaml:2: "kernels" in the file is a list, not a mapping', "write"),
    ("version: 1\ntraces: [traces/brt]\nkernels: {}", "cgins.yaml:2: no such folder: traces/brt", '"traces/bert"'),
    ("version: 1\ntraces: [traces/bert, traces/../traces/bert]\nkernels: {}", "cgins.yaml:2: \"traces\" in the file has 'traces/../traces/bert' twice, first in line 2", "once"),
    ("version: 1\ntraces: ['']\nkernels: {}", 'cgins.yaml:2: "traces" in the file is text, not text that is not empty', "write"),
    ("- 1", "cgins.yaml:1: the file is not a mapping", "KEY: VALUE"),
    ("", "cgins.yaml: empty", "start with version: 1"),
    ("version: 1\n  x: [", "cgins.yaml:2: not YAML: ", "correct it"),
    ("version: 1\nkernels: {'a,b': {op: x}}", 'cgins.yaml:2: kernel name "a,b" has characters', "letters"),
    ("version: 1\nkernels: {a: {source: k/a.cpp}}", 'cgins.yaml:2: kernel "a" has no "op"', "name the op"),
    (kernels(""), 'cgins.yaml:3: kernel "it" has neither implementations nor a source or target', "add source"),
    (kernels("    sorce: k/a.cpp\n"), 'cgins.yaml:5: unknown key "sorce" in kernel "it"', '"source"'),
    (kernels("    implementations: []\n"), 'cgins.yaml:5: kernel "it" has no implementation', "at least one"),
    (kernels("    implementations:\n      - {name: cuda,\n         sorce: k/b.cu}\n"),
     'cgins.yaml:7: unknown key "sorce" in implementation "cuda" of kernel "it"', '"source"'),
    (kernels("    source: k/a.cpp\n    implementations: [{source: k/a.cpp}]\n"),
     'cgins.yaml:5: unknown key "source" in kernel "it"', "op, implementations, reference"),
    (kernels("    source: k/aa.cpp\n"), "cgins.yaml:5: no such file: k/aa.cpp", '"k/a.cpp"'),
    (kernels("    source: [k/a.cpp]\n"), 'cgins.yaml:5: "source" in kernel "it" is a list, not text', "write"),
    (kernels("    source: k/a.cpp\n    sources: [k/a.cpp]\n"), "cgins.yaml:6: kernel \"it\" has both", "sources"),
    (kernels("    source: k/c.py\n"), "cgins.yaml:3: kernel \"it\" does not say its device", "device: cpu"),
    (kernels("    source: k/a.cpp\n    device: gpu\n"), 'cgins.yaml:6: "device" in kernel "it" is "gpu"', "cpu"),
    (kernels("    source: k/a.cpp\n    contract: lancher\n"), '"contract" in kernel "it" is "lancher"', '"launcher"'),
    (kernels("    source: k/a.cpp\n    contract: torch-extension\n"), "kernel \"it\" has no \"entry\"", "entry"),
    (kernels("    contract: python\n    device: cpu\n"), 'kernel "it" has no "target"', "MODULE:FUNCTION"),
    (kernels("    target: k.c.f\n    device: cpu\n"), 'cgins.yaml:5: target "k.c.f" is not MODULE:FUNCTION', "e.g."),
    (kernels("    target: torch.ops.lib.f\n    device: cpu\n"), 'kernel "it" has no "load"', "load: [build/libNAME.so]"),
    (kernels("    target: k.c:f\n    device: cpu\n    load: [lib.so, 'a b']\n"), 'cgins.yaml:7: load has "a b"', "PACKAGE.MODULE"),
    (kernels("    source: k/a.cpp\n    load: [lib.so]\n    contract: launcher\n"), '"load" has no effect', "contract: python"),
    (kernels("    source: k/a.cpp\n    reference: k.c.f\n"), 'cgins.yaml:6: reference "k.c.f" is not', "tests.reference:rms_norm"),
    (kernels("    device: cpu\n"), 'kernel "it" has no source', "add source"),
    (kernels("    source: k/a.cpp\n    interpret: true\n"), 'cgins.yaml:6: "interpret" has no effect', "remove it"),
    (kernels("    source: k/a.cpp\n    archs: [sm_80]\n"), 'cgins.yaml:6: "archs" has no effect', "device: cuda"),
    (kernels("    source: k/a.cpp\n    target: m:f\n    contract: launcher\n"), '"target" has no effect', "remove"),
    (kernels("    target: k.c:f\n    interpret: 1\n"), '"interpret" in kernel "it" is a whole number (1)', "true"),
    (kernels("    source: k/a.cpp\n    name: a[b]\n"), 'implementation name "a[b]" has characters', "letters"),
    (kernels("    source: k/a.cpp\n    defines: {A-B: 1}\n"), '"A-B" is not the name of a macro', "letters"),
    (kernels("    source: k/a.cpp\n    defines: {A: [1]}\n"), '"A" in defines of kernel "it" is a list', "single"),
    (kernels("    source: k/a.cpp\n    tolerance: {rtol: -1}\n"),
     '"rtol" in tolerance of kernel "it" is a whole number (-1)', "at least 0"),
    (kernels("    source: k/a.cpp\n    tolerance: {rtol: .inf}\n"), "a number (.inf), not a finite", "at least 0"),
    (kernels("    source: k/a.cpp\n    tolerance: {rtol: x}\n"), "is text (x), not a finite number", "at least 0"),
    (kernels("    source: k/a.cpp\n    tolerance: {}\n"), 'tolerance of kernel "it" is empty', "derived"),
    (kernels("    source: k/a.cpp\n    tolerance: derive\n"), '"tolerance" in kernel "it" is "derive"', "derived"),
    (kernels("    source: k/a.cpp\n    tolerance: tight\n"), '"tolerance" in kernel "it" is "tight"',
     "write derived or a mapping such as {rtol: 1e-3, atol: 1e-5}"),
    (kernels("    source: k/a.cpp\n    device: xpu9\n"), '"device" in kernel "it" is "xpu9"', "write cpu or cuda"),
    (kernels("    implementations:\n      - {source: k/a.cpp}\n      - {source: k/a.cpp}\n"),
     'two implementations "cpp" for device cpu, in lines 6 and 7', "another name"),
    (kernels("    implementations:\n      - {source: k/a.cpp}\n      - {source: k/a.cpp, name: cpu-cpp}\n"),
     'two implementations "cpu-cpp" for device cpu', "another name"),
    (kernels("    source: !!python/object/apply:os.system [x]\n"), "is a value with tag python/object/apply:os.system", "write text"),
    ("version: 1\nkernels: &a {a: *a}", "values or 32 levels", "aliases"),
    ("version: 1\nkernels: *a", "cgins.yaml:2: not YAML: found undefined alias", "correct it"),
    ('version: 1\nkernels: {a: {op: x, source: "k\\0"}}', "cgins.yaml:2: no such file: k\0", '"k"'),
    ("[" * 5000, "cgins.yaml:1: more than 100000 values or 32 levels", "fewer values, levels"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "what", "remedy"), REFUSED, ids=[str(n) for n in range(len(REFUSED))])
def test_refused(folder: Path, text: str, what: str, remedy: str) -> None:
    """Each mistake is refused with file, line, the wrong word and the right one."""
    with pytest.raises(ConfigError) as caught:
        read(folder, text)
    assert what in caught.value.what
    assert caught.value.what.startswith("cgins.yaml:")
    assert remedy in caught.value.remedy


def test_missing_file(folder: Path) -> None:
    """A configuration that is not there is refused by name."""
    with pytest.raises(ConfigError, match=r"nope\.yaml: No such file or directory"):
        load(folder / "nope.yaml")


def test_too_large(folder: Path) -> None:
    """A file of megabytes is not parsed."""
    with pytest.raises(ConfigError, match="larger than 1 MiB"):
        read(folder, "#" * (1 << 20) + "\n")


def test_billion_laughs(folder: Path) -> None:
    """Aliases cannot blow a small file up."""
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join(8 * [f'*a{n - 1}'])}]" for n in range(1, 9)]
    with pytest.raises(ConfigError, match="more than 100000 values"):
        read(folder, "\n".join(lines))


def test_not_utf8(folder: Path) -> None:
    """Other encodings are refused."""
    (folder / "cgins.yaml").write_bytes(b"version: 1 # \xff")
    with pytest.raises(ConfigError, match="not UTF-8 at byte 13"):
        load(folder / "cgins.yaml")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(alphabet="version: 1\nkernels{}[]&*!|>-'\"#,aop", max_size=80).map(
        lambda t: "version: 1\n" + t
    )
)
def test_never_raises_anything_else(folder: Path, text: str) -> None:
    """Whatever the file holds, it is read or refused as a configuration error."""
    with suppress(ConfigError):
        assert read(folder, text).file == folder / "cgins.yaml"
