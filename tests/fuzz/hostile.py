"""Inputs made to hurt, by parser: what is announced and not there, endless, nested, repeated, or somewhere else."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Iterable
from typing import Any

import torch

from pytest_cgins.run.protocol import PROTOCOL_VERSION
from tests.fuzz import seeds

DEEP = 20_000
HUGE = "9" * 5000


def any_json(valid: bytes) -> list[bytes]:
    """What hurts any reader of JSON."""
    digits = HUGE.encode()
    return [
        b"", b"\0", b"null", b"[]", b"{}", b"\xff\xfe", b'"', b"[" * DEEP, b'{"a":' * DEEP, b"[" * DEEP + b"]" * DEEP,
        '["\u2200",'.encode("utf-16-le") + ("[" * 5000).encode("utf-16-le") + '"x"'.encode("utf-16-le"),
        b'"' + b'\\"' * 50_000, b"[" + digits + b"]", b"[1e999999, NaN, Infinity]", b'{"a": 1, "a": 2}',
        valid.replace(b'"version":', b'"version":9,"version":', 1), valid[:-9], valid + valid,
        valid.decode().encode("utf-16"), b"\xef\xbb\xbf" + valid, valid.replace(b"0", digits, 1),
        valid.replace(b'"', b'"\xed\xa0\x80', 1), b'{"a": "\\ud800"}', b'["' + b"a" * 2**20 + b'"]', b"[]" + b"," * DEEP,
        b"[" + b"{}," * DEEP + b"{}]", b'{"version":1,"traces":[' + b"[]," * DEEP + b"[]]}",
    ]  # fmt: skip


def blobs() -> list[bytes]:
    good = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}
    lies: list[dict[str, Any]] = [
        {**good, "shape": [2**60]}, {**good, "data_offsets": [0, 2**60]}, {**good, "data_offsets": [-1, 3]},
        {**good, "dtype": "F64"}, {**good, "shape": [2**32, 2**32]}, {**good, "shape": [True, 4]},
    ]  # fmt: skip
    made = [seeds.blob({"data": lie}, b"abcd") for lie in lies]
    made += [seeds.blob({"data": good}, b"abcd", length) for length in (0, 1, 2**31, 2**60, 2**64 - 1)]
    made += [b"", b"\0" * 7, b"\0" * 8, (1000).to_bytes(8, "little") + b"[" * 1000, b"\xff" * 64]
    return made


def configs() -> list[bytes]:
    bomb = "a0: &a0 [x]\n" + "".join(f"a{i + 1}: &a{i + 1} [*a{i}, *a{i}]\n" for i in range(40))
    kernel = "version: 1\nkernels:\n  a: {op: b, source: %s}\n"
    llm = "version: 1\nkernels: {}\nllm: {provider: ollama, model: m, %s}\n"
    texts = [
        bomb, "&a [*a]", "version: " + HUGE, 'version: "\\U00110000"', "version: !!int [1]", "? !!str [a]\n: 1",
        "version: 1\ntraces: !!seq foo\nkernels: {}", "version: 1\nkernels: !!map foo", "!!map [1]", "!!map foo",
        "[" * 5000, "{a: " * 5000, "- " * 5000, "? " * 5000, "a: [" + "a," * 25_000 + "]", "version: [" + "{a: b}," * 10_000 + "]",
        'version: 1\ntraces: ["\\ud800"]\nkernels: {}', 'version: 1\ntraces: ["\\0"]\nkernels: {}', "version: 1\nversion: 2",
        "version: !!python/object/apply:os.system [true]", "<<: {version: 1}\nkernels: {}", kernel % "/dev/zero",
        kernel % "../../../../etc/passwd", kernel % '"\\0"', kernel % ("x" * 5000), "%YAML 9.9\n---\na", "\t", "\ufeff", "---\n---\n",
        "version: 0x1", "version: 1_0", "version: 1e400", "version: " + "a" * 300_000, "a: |\n" + " x\n" * 20_000,
        "version: 1\nkernels: {a: {op: b, tolerance: {rtol: .inf}, source: k.cpp}}",
        "version: 1\nkernels: {a: {op: b, implementations: [{name: [c]}, 3, !!str [d]]}}",
        "version: 1\nkernels: {a: {op: b, gate: {registers: " + HUGE + "}, source: k.cpp}}", "#" * 300_000, "'" + "a\n" * 30_000,
        llm % 'runs: "\\0"', llm % "runs: /dev/zero", llm % ("base_url: 'http://" + "[" * 300 + "'"), llm % "base_url: 'http://\uff0f@h'",
        llm % ("base_url: http://h:" + "9" * 5000), llm % ("api_key_env: " + "a1" * 5000), llm % ("api_key_env: " + "9" * 300_000),
        llm % ("budget: {tokens: " + HUGE + "}"), llm % "budget: {usd: 1e400}", llm % ("budget: {minutes: " + "9" * 5000 + "}"),
        llm % "prices: {m: {input: !!float [1], output: 1}}", llm % "temperature: !!map foo", llm % "stream: {? [a] : b}",
        llm % ("prices: {" + ", ".join(f"m{i}: {{input: 1, output: 1}}" for i in range(4000)) + "}"), llm % '"\\ud800": 1',
    ]  # fmt: skip
    return [text.encode("utf-8", "surrogatepass") for text in texts] + [
        b"\xff\xfe",
        b"a: \xff",
        b"x" * (2**20 + 1),
    ]


EXPRESSIONS = (
    "__import__('os').system('true')", "().__class__.__bases__[0].__subclasses__()", "torch.load('x')", "torch.zeros(2**60)",
    "torch.zeros(2**40, 2**40)", "9**64**64", "2**63 * 2**63", "'a' * 2**40", "[0] * 2**40", "-" * 400 + "1", "-" * 4000 + "1",
    "(" * 200 + "1" + ")" * 200, "(" * 90 + "1" + ")" * 90, "~" * 300 + "{}", "f'{1:>1000000000}'", "lambda: 0", "[i for i in x]",
    "torch.ones(2**17, 2).expand(2**17, 2**20)", "x.expand(2**40, 4, 4)", "(" + "torch.zeros(262144)," * 40 + ")",
    "torch.eye(10**9)", "torch.arange(0, 1e18)", "torch.tensor(" + "[" * 100 + "]" * 100 + ")", "torch.zeros(-1)", "1/0", "1e308**64",
    "torch.full((4,), 2**64)", "int('" + "9" * 4050 + "')", "float('nan')", "int(nan)", "x(1)", "torch.hub.load('a', 'b')",
    "torch.zeros(1, out=x)", "x.to(**{})", "torch.randperm(2**40)", "x.__class__", "torch.zeros(2, device='meta:99')", "\ud800", "\0",
    "torch.zeros(2, names=('a',))", "torch.zeros(4).view(2, 2, -1, -1)", "x.T.T.T" + ".T" * 200, "torch.stack([x] , dim=2**63)",
)  # fmt: skip


def gins(valid: bytes) -> list[bytes]:
    text = valid.decode()
    changes = [
        ("torch.matmul", "os.system"), ("torch.matmul", "torch.load"), ("torch.matmul", "torch.ops.aten.from_file"),
        ("torch.matmul", "torch.ops.load_library"), ("torch.matmul", "torch.utils.data.x"), ('"a", "b"', '"a) + f(b"'),
        ("torch.randn(4, 4)", "torch.zeros(2**60)"), ('"dim=-1"', '"**{}"'), ('["a", "b"]', '"ab"'), ("softmax", "fold"),
        ("torch.matmul", "torch.hub.load"), ("torch.matmul", "torch.__main__"), ("torch.matmul", "torch.\ud800"),
    ]  # fmt: skip
    made = [text.replace(old, new).encode("utf-8", "surrogatepass") for old, new in changes]
    lots = [
        {
            "name": "p",
            "definitions": [{"variable": f"v{i}", "value": "torch.zeros(262144)"} for i in range(80)],
        }
    ]
    return [*made, json.dumps(lots).encode()]


BACKENDBENCH = tuple(
    f"Operator: {op}\ncnt: {count}, {args}\n"
    for op, count, args in (
        ("aten.relu.default", 1, "((T([4294967296, 4294967296], u8, [0, 0]),), {})"),
        ("aten.relu.default", 1, "((T([1099511627775], f64),), {})"),
        ("aten.relu.default", 1, "((T([1, 2], f32, [1]),), {})"),
        ("aten.cat.default", 1, "(([" + "T([262144], f32), " * 40 + "],), {})"),
        ("aten.zeros.default", 1, "(([100000000000],), {})"),
        ("aten.ones.default", 1, "(([500000000],), {})"),
        ("aten.arange.default", 1, "((1000000000000,), {})"),
        ("aten.from_file.default", 1, "(('/tmp/x', True, 100), {})"),
        ("aten.save", 1, "((T([1], f32), 'x'), {})"),
        ("aten.load_library", 1, "(('x.so',), {})"),
        ("aten.__class__", 1, "((), {})"),
        ("aten.relu.__init__", 1, "((T([1], f32),), {})"),
        ("aten.add.Tensor", "9" * 18, "((T([1], b8), __import__('os').system('true')), {})"),
        ("aten.add.Tensor", 1, "((" + "(" * 90 + ")" * 90 + ",), {})"),
        ("aten.add.Tensor", 1, "((" + "-" * 400 + "1,), {})"),
        ("aten.embedding.default", 1, "((T([0], f32), T([2], i64)), {})"),
        ("aten.one_hot.default", 1, "((T([2], i64), -5), {})"),
        ("aten.embedding_dense_backward", 1, "((T([2], f32), T([2], i64), 9e999), {})"),
        ("aten.add.Tensor", 1, "((T([2], f32, (1,), device('cuda')), nan), {'a': torch.int, **x})"),
    )
)


def headers() -> list[bytes]:
    def one(nbytes: int = 24, spans: object = (24,), **changes: object) -> bytes:
        meta = {"dtype": "float32", "shape": [2, 3], "stride": [3, 1], "offset": 0, "storage": 0, **changes}
        return json.dumps({"header": {"metas": [meta], "spans": spans}, "nbytes": nbytes}).encode()

    return [
        one(shape=[2**60, 1]), one(shape=[2**61, 2**61], stride=[0, 0]), one(stride=[2**62, 1]), one(offset=2**70), one(storage=9),
        one(nbytes=2**60, spans=[2**60]), one(nbytes=2**40, spans=[2**40]), one(spans=[24, *[0] * 500_000]), one(dtype="qint8"),
        one(shape=[2] * 80, stride=[1] * 80), one(spans=[True, 23]), one(spans=[2**70, 24 - 2**70]), one(shape=[-1, 3]), one(dtype="\ud800"),
        one(shape=[2**40, 2**20], stride=[0, 0]), one(shape=[0, 2**62], stride=[1, 1]), one(shape=[2**31] * 3, stride=[0] * 3),
    ]  # fmt: skip


def frames() -> list[bytes]:
    bodies = [
        b"[]", b"{}", b'{"version": V}', b'{"version": V, "buffers": -1}', b'{"version": V, "buffers": 4097}', b"[" * DEEP,
        b'{"version": V, "buffers": 4096}', b'{"version": V, "buffers": true}', b'{"version": NaN}', b'{"version": ' + b"9" * 5000 + b"}",
        b'{"version": V, "buffers": 0, "result": "\\ud800"}', b'{"a":' * DEEP, "{}".encode("utf-16"), b"\xff" * 9,
    ]  # fmt: skip
    lies = [seeds.frame(b"{}", length) for length in (0, 1, 3, 2**26, 2**26 + 1, 2**32 - 1)]
    bodies = [body.replace(b"V", str(PROTOCOL_VERSION).encode()) for body in bodies]
    return [seeds.frame(body) for body in bodies] + lies + [b"", b"\0\0"]


SCHEMAS = (
    "// cgins: f(Tensor x, int a=" + "-" * 3000 + "1) -> Tensor", "// cgins: f(Tensor x, int a={[]}) -> Tensor",
    "// cgins: f(Tensor x, int a=" + "(" * 300 + ")" * 300 + ") -> Tensor", "// cgins: f(Tensor" + "?" * 3000 + " x) -> Tensor",
    "// cgins: f(" + "Tensor x, " * 40_000 + "int y) -> Tensor", "// cgins: a" + " " * 4000 + "b", "// cgins: f(Tensor[" + "9" * 5000 + "] x) -> Tensor",
    "// cgins: f(\n" + "// a" + " " * 4000 + "b\n" * 3, "// cgins: f(Tensor(a! x) -> Tensor(b!)", "// cgins: f() -> ()", "// cgins: f(Tensor x) -> " + "(" * 2000,
    "// cgins: f(Tensor x, str s='\\ud800') -> Tensor", "// cgins: f(Tensor \u202e) -> Tensor", "// cgins:" + "\n//" * 50_000, "// cgins: f(int a=9**9**9) -> ()",
    "// cgins: f(Tensor x, int[" + "0" * 3000 + "] y) -> Tensor", "// cgins: " + "f" * 100_000 + "(Tensor x) -> Tensor", "// cgins: f(Tensor x)->Tensor" + ")" * 20_000,
)  # fmt: skip
_F = "// cgins: f(Tensor x, int n) -> Tensor\n// cgins-launch: "
LAUNCHES = (
    _F + "kernel=a<choose(n, " + HUGE + ")> grid=1 block=1 args=(x)", _F + "grid=1 block=1 args=(x" + " " * 3000 + "y)", _F + "grid=(" + "(" * 5000,
    _F + "grid=1 block=1 args=(" + "x," * 900 + ")", _F + "grid=1\n" + "// x(\n" * 30_000, _F + "grid=1 block=1 args=()\n//" + " " * 4000 + "x",
    "constexpr " + "a " * 30_000, _F + "grid=" + "9" * 1900 + " block=1 args=()", _F + "grid=1 block=1 args=() zero=(" + "out," * 400 + ")",
    _F + "kernel=a<" + ",".join(f"choose(n + {i}, 1, 2)" for i in range(40)) + "> grid=1 block=1 args=()", "#define A " + HUGE + "\n" + "#define B 0x" + "f" * 20_000,
    _F + "kernel=" + "a::" * 5000 + "b grid=1 block=1 args=()", _F + "kernel=\u0661<choose(n,\u0661)> grid=1 block=1 args=()", _F + "grid=1 " * 5000,
)  # fmt: skip
LAUNCH_EXPRESSIONS = (
    "9**9**9", "2**63 * 2**63", "n ** 64 ** 64", "'a' * n", "x.shape * n", "(1, 2) * n", "prod((n, n, n, n))", "prod(x.shape) ** 64", "len('a')", "max()", "min(1)", "int('9')",
    "int('" + "9" * 1900 + "')", "float('1e999')", "abs(x)", "n << 63", "n >> 99", "n >> -1", "1 / 0", "n % 0.0", "x[0]", "xs[99]", "xs['a']", "bool(x)", "-'a'", "'a' + 1", "'a' < 1",
    "None in n", "1 in 'a'", "x.shape[n]", "x.__class__", "numel.__globals__", "f(x)", "lambda: 0", "(" * 90 + "1" + ")" * 90, "-" * 62 + "1", "1e308 * 1e308", "int(1e308 * 10)",
    "int(nan)", "1e400 // 1", "2.0 ** 64 ** 2", "a ** n", "(-8) ** 0.5", "sizeof()", "sizeof(sizeof)", "has()", "prod('ab')", "prod(xs)", "max(xs)", "min(x.shape, 3)", "n if x else a",
    "int('\u0661')", "int(' 1_0 ')", "('" + "a" * 900 + "' + 'b') + 'c'", "x.shape + x.shape", "((x.shape + x.shape) + (x.shape + x.shape)) == n", "next_power_of_2(9223372036854775807)",
)  # fmt: skip
PTXAS = (
    "Compiling entry function 'a' for 'sm_90a'\nUsed " + HUGE + " registers", "1" * 60_000, "1" * 60_000 + " bytes stack frame",
    "Compiling entry function '" + "a" * 60_000, "Function properties for " * 5000, "Used 1 registers" + "1" * 40_000, "Used 1 registers" + "1+" * 20_000,
    "\n" * 100_000, "Compiling entry function 'a' for 'sm_90a'\n" * 5000,
)  # fmt: skip
SASS = (
    "arch = sm_90a\nFunction : f\n  /*0000*/ " + "A" * 60_000, "Function : f\n/*" + "0" * 60_000, "Function : f\n/*0000*/ @" + "P" * 60_000, " " * 60_000, "Function : " + "a" * 60_000,
    "Function : f\n/*0000*/" + " " * 60_000 + "x", "Function : f" + " " * 60_000 + "x", "".join(f"Function : f{i}\n" for i in range(5000)),
)  # fmt: skip
LOGS = (
    "unknown " * 12_000, ": In a" * 12_000, "ld: " + "in function " * 8000, ":1" * 30_000, "1" * 90_000, "a: required " * 8000, "(" * 50_000 + ")", " " * 90_000,
    "No space left on device" + "\n" * 50_000 + "x", "No space left on device\n \n" * 3000 + "x", "ptxas error " * 9000, "a:1: error: x\n" * 5000, "In file included from x\n" * 20_000 + "a:1: error: x\n",
    "virtual memory exhausted" * 4000 + "\n", "sh: " * 20_000, "a" * 90_000 + ":", "nvcc fatal : Unsupported gpu architecture 'sm_" + "1" * 50_000, "x: line " * 10_000, "died due to signal " * 5000,
)  # fmt: skip
REFERENCES = (
    "import os; os.system('true')", "open('/tmp/cgins-fuzz', 'w')", "a = " + "-" * 50_000 + "1", "a = " + "(" * 5000, "\0", "a = b = c = 1\n" * 5000, "x =", "# -*- coding: rot13 -*-\n",
    "a = f'{1:>999999999}'", "\\" * 9, "if 1:\n" + "".join(" " * i + "if 1:\n" for i in range(1, 150)), "a" + ".b" * 50_000, "batch_size = (\n1\n" + "\n" * 9000 + ")",
)  # fmt: skip
KERNEL = (
    "/*" * 100_000, "//" * 100_000, 'extern "C" void solve(' + "a " * 2000 + "!)", 'extern "C" void solve(' + "a" * 5000 + "!)", 'extern "C"' + " " * 100_000 + "x",
    'extern "C" void solve(' + "float* a, " * 3000 + ")", "extern " * 30_000, 'extern "C" void solve(float ** ** a)', 'extern "C" void solve(int' + " " * 50_000 + "!)",
)  # fmt: skip


def configurations() -> list[bytes]:
    many = [{}] * 400
    lots = {f"multi_{kind}_configs": many for kind in ("input", "init", "shared")}
    return [json.dumps(lots).encode(), b'{"multi_init_configs": "x"}', b'{"multi_init_configs": [[]]}', b"[]"]


def flashinfer(valid: Iterable[bytes]) -> list[bytes]:
    made = []
    for text in map(bytes.decode, valid):
        for old, new in (
            ('"rows": 4', '"rows": 1152921504606846976'), ('"value": 8', '"value": -1'), ('"float32"', '"qint8"'), ('["rows", "width"]', '["rows", "rows", "rows"]'),
            ("blob/i.safetensors", "../../../etc/passwd"), ("blob/i.safetensors", "/dev/zero"), ("blob/i.safetensors", "fifo"), ('"tensor_key": "i"', '"tensor_key": []'),
            ('"type": "const", "value": 8', '"type": "expr", "expression": "width"'), ('"type": "const", "value": 8', '"type": "expr", "expression": "rows ** rows ** rows"'),
            ("blob/i.safetensors", "\\u0000"), ('"rows": 4', '"rows": 0'), ('"random"', '"scalar"'), ('"gather"', '"../../x"'), ("0.5", "[" * 300 + "]" * 300), ('"x":', '"\\ud800":'),
        ):  # fmt: skip
            made.append(text.replace(old, new).encode())
    big = json.loads(next(iter(valid)))
    big["definition"]["inputs"] = {f"x{i}": {"shape": ["n"], "dtype": "bool"} for i in range(60)}
    big["workload"]["axes"] = {"n": 1_000_000}
    big["workload"]["inputs"] = {}
    big["definition"]["axes"] = {"n": {"type": "var"}}
    return [*made, json.dumps(big).encode()]


def pairs() -> list[bytes]:
    endless: list[Any] = []
    endless.append(endless)
    base = {"function_name": "torch.sin", "output": torch.ones(1)}
    made = [seeds.saved({**base, "args": endless}), seeds.saved({**base, "args": [torch.eye(3).to_sparse()]})]
    made += [
        nested("args"),
        nested("function_name"),
        seeds.saved({**base, "args": [1], "kwargs": {3: 4}}),
        seeds.saved([1]),
        seeds.saved(endless),
    ]
    made += [
        seeds.saved({**base, "args": [torch.zeros(1).expand(2**20, 2**20)]}),
        seeds.saved({**base, "args": [torch.zeros(1, device="meta")]}),
    ]
    made += [
        seeds.saved({**base, "function_name": name, "args": ["true"]})
        for name in ("os.system", "torch.load", "torch.hub.load", "torch.x")
    ]
    raws = [
        pickle.dumps(_Runs()),
        b"\x80\x02cos\nsystem\nX\x04\0\0\0true\x85R.",
        b"\x80\x02cbuiltins\nbytearray\n\x8a\x08" + b"\0" * 7 + b"\x10\x85R.",
    ]
    return [
        *made,
        *raws,
        b"",
        b"PK\x03\x04",
        b"(" * DEEP,
        b"\x80\x02" + b"]" * DEEP,
        b"\x80\x02" + b"(" * DEEP + b"t" * DEEP + b".",
    ]


def nested(name: str) -> bytes:
    """An entry with a list that is nested deeper than Python can write."""
    deep = b"]" * 3000 + b"a" * 2999

    def item(key: str) -> bytes:
        text = key.encode()
        return b"X" + len(text).to_bytes(4, "little") + text + (deep if key == name else b"]")

    pickled = b"\x80\x02}(" + b"".join(map(item, ("args", "output", "function_name"))) + b"u."
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(seeds.saved([]))) as valid, zipfile.ZipFile(made, "w") as out:
        for member in valid.namelist():
            out.writestr(member, pickled if member.endswith("data.pkl") else valid.read(member))
    return made.getvalue()


class _Runs:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> Any:
        import os

        return os.system, ("true",)


def manifests() -> list[bytes]:
    valid = seeds.manifests()[0]
    tree = json.loads(valid)
    trace = tree["traces"][0]
    storage = {"nbytes": 0, "dtype": "uint8"}
    meta = {"dtype": "uint8", "shape": [0], "stride": [1], "offset": 0, "storage": 0}
    many = {**trace, "storages": [storage] * 12_000, "tensors": [meta] * 12_000}
    huge = {**trace, "tensors": [{**one, "shape": [2**60] * len(one["shape"])} for one in trace["tensors"]]}
    twice = b'{"traces":[{"count":5,"count":6}],' + valid[1:]
    return [
        *any_json(valid), json.dumps({**tree, "traces": [many]}).encode(), json.dumps({**tree, "traces": [huge]}).encode(), twice,
        json.dumps({**tree, "name": "../x"}).encode(), valid.replace(b'"sha256":"', b'"sha256":"../../../', 1), json.dumps({**tree, "traces": tree["traces"] * 400}).encode(),
    ]  # fmt: skip
