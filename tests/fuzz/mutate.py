"""Structure-aware mutation: inputs that are wrong in one or a few places, and get far into a parser."""

from __future__ import annotations

import copy
import io
import json
import random
import re
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

NUMBERS: tuple[Any, ...] = (
    0, -1, 1, 2**31, 2**60, 2**63, 2**64, -(2**63) - 1, 2**128, 10**300, 0.5, -0.0, 1e308, float("nan"),
    float("inf"), -float("inf"), True,
)  # fmt: skip
TEXTS = (
    "", " ", "a", "../../etc/passwd", "/dev/zero", "x" * 300, "\ud800", "\0", "é\u2028", "0x1p99999999", "nan",
    "cuda:999", "float32", "os.system", "torch.load", "__import__('os').system('true')", "%s%n{0}", "\u202e",
    "torch.nn.functional.relu", "\x1b[31m", "::error::x", "9" * 5000, "1e400", "-" * 500 + "1", "a" + " " * 500 + "b",
)  # fmt: skip
TOKENS = (
    b"(", b")", b"[", b"]", b"{", b"}", b"<", b">", b",", b":", b"=", b"->", b"*", b"**", b"//", b"/*", b"*/", b"&a",
    b"*a", b"<<", b"!!str", b"!!seq", b"!!map", b"!!python/object:os.system", b"? ", b"- ", b"|", b"'", b'"', b"\\",
    b"\n", b"\r", b"\t", b"\0", b"\xff", b"\xed\xa0\x80", b"\xe2\x80\xa8", b"0", b"-1", b"9223372036854775808",
    b"1e999", b"nan", b"None", b"lambda: 0", b"f'{x}'", b"__class__", b".__globals__", b"if", b"else", b"not", b"in",
    b"(a!)", b"?", b"[]", b"Tensor", b"int", b"str", b"Scalar", b"torch", b"@", b"~", b":=", b"%", b"0b1", b"1j", b"...",
)  # fmt: skip
EMPTY: tuple[Any, ...] = (None, [], {}, [[]], [None] * 70, {"": ""})
_PARTS = re.compile(rb"\w+|\s+|[^\w\s]")
_SIZES = (0, 1, 2**31 - 1, 2**32 - 1, 2**60, 2**63, 2**64 - 1)

Mutator = Callable[[random.Random, bytes, Sequence[bytes]], bytes]


def document(rng: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """JSON with other values, keys, types and depths; now and then in another encoding, or with a key twice."""
    try:
        tree = json.loads(data)
        other = json.loads(rng.choice(seeds))
    except (ValueError, RecursionError):
        return text(rng, data, seeds)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        tree = _changed(rng, tree, other)
    try:
        made = json.dumps(tree, ensure_ascii=rng.random() < 0.8)
    except (ValueError, RecursionError):
        return data
    if rng.random() < 0.05:
        made = re.sub(r'("\w+": )', lambda m: f"{m[1]}{rng.choice(['0', '[]', '{}'])}, {m[1]}", made, count=1)
    if rng.random() < 0.03:
        return made.encode(rng.choice(["utf-16-le", "utf-32-be", "utf-8-sig", "utf-16"]), "surrogatepass")
    return made.encode("utf-8", "surrogatepass")


def _changed(rng: random.Random, tree: Any, other: Any) -> Any:
    """The tree with one node changed."""
    nodes = _places(tree)
    if not nodes:
        return rng.choice([*NUMBERS, *TEXTS, [], {}, None])
    # A long list of numbers must not hide the rest.
    holder, key = rng.choice(nodes)
    value = holder[key]
    kind = rng.choice(("value", "value", "delete", "other", "deeper", "again"))
    if kind == "value":
        holder[key] = rng.choice(
            [rng.choice(NUMBERS), rng.choice(TEXTS), _moved(rng, value), rng.choice(EMPTY)]
        )
    elif kind == "delete":
        del holder[key]
    elif kind == "deeper":
        for _ in range(rng.choice((1, 3, 40, 120))):
            holder[key] = [holder[key]] if rng.random() < 0.7 else {"a": holder[key]}
    elif kind == "again" and isinstance(holder, list):
        holder[key:key] = [copy.deepcopy(value) for _ in range(_times(rng, value))]
    elif kind == "again":
        holder[rng.choice(TEXTS)] = copy.deepcopy(value)
    elif elsewhere := _places(other):
        there, name = rng.choice(elsewhere)
        holder[key] = copy.deepcopy(there[name])
    return tree


def _times(rng: random.Random, value: Any) -> int:
    """How often to repeat a value: what is large is not made much larger."""
    return rng.choice((1, 2, 80)) if len(_places([value])) < 30 else 1


def _moved(rng: random.Random, value: Any) -> Any:
    """A number near the one that was there."""
    return value + rng.choice((-1, 1, 2**20, 2**40)) if type(value) is int else value


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """(container, key) of every value, numbers of long lists left out."""
    found: list[tuple[Any, Any]] = []
    todo = [tree]
    while todo and len(found) < 5000:
        node = todo.pop()
        keys = (
            list(node)
            if isinstance(node, dict)
            else range(min(len(node), 6))
            if isinstance(node, list)
            else ()
        )
        for key in keys:
            found.append((node, key))
            todo.append(node[key])
    return found


def text(rng: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Words, blanks and marks deleted, doubled, repeated, exchanged, or taken from another seed."""
    parts = _PARTS.findall(data) or [b" "]
    theirs = _PARTS.findall(rng.choice(seeds)) or [b" "]
    for _ in range(rng.choice((1, 1, 1, 1, 2, 2, 3, 8))):
        at = rng.randrange(len(parts) or 1)
        kind = rng.randrange(9)
        if kind == 0:
            del parts[at : at + rng.choice((1, 1, 3))]
        elif kind == 1:
            parts[at:at] = [rng.choice(TOKENS)]
        elif kind == 2:
            parts[at : at + 1] = [rng.choice(TOKENS)]
        elif kind == 3:
            parts[at:at] = [*parts[at : at + 1]] * rng.choice((1, 2, 100, 1000))
        elif kind == 4:
            start = rng.randrange(len(theirs))
            parts[at:at] = theirs[start : start + rng.choice((1, 4, 12))]
        elif kind == 5:
            parts[at : at + 1] = [str(rng.choice(NUMBERS)).encode()]
        elif kind == 6:
            parts[at : at + 1] = [rng.choice(TEXTS).encode("utf-8", "surrogatepass")]
        elif kind == 7:
            opening, closing = rng.choice(
                ((b"(", b")"), (b"[", b"]"), (b"-", b""), (b"not ", b""), (b"{", b"}"))
            )
            many = rng.choice((1, 5, 90, 1500))
            parts[at : at + 1] = [opening * many, *parts[at : at + 1], closing * many]
        else:
            end = rng.randrange(len(parts) or 1)
            parts[at:end] = parts[at:end][::-1] if end - at < 4 else []
        parts = parts or [b" "]
    return b"".join(parts)


def raw(rng: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Bits and bytes; lengths that announce far more than is there."""
    made = bytearray(data or b"\0")
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(made) or 1)
        kind = rng.randrange(6)
        if kind == 0 and made:
            made[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            made[at : at + 1] = bytes(rng.randrange(256) for _ in range(rng.choice((0, 1, 4))))
        elif kind == 2:
            size = rng.choice((2, 4, 8))
            number = rng.choice(_SIZES) % 2 ** (8 * size)
            made[at : at + size] = number.to_bytes(size, rng.choice(("little", "big")))
        elif kind == 3:
            del made[at:]
        elif kind == 4:
            other = rng.choice(seeds)
            made[at:] = other[rng.randrange(len(other) or 1) :]
        else:
            made[at:at] = rng.choice(TOKENS) * rng.choice((1, 1, 300))
    return bytes(made)


def archive(rng: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """A zip whose members are changed and packed again, so that its checksums are right."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            members = {name: file.read(name) for name in file.namelist()}
    except Exception:  # noqa: BLE001 - a broken archive is changed as bytes
        return raw(rng, data, seeds)
    if rng.random() < 0.15 or not members:
        return raw(rng, data, seeds)
    chosen = rng.choice(list(members) + [name for name in members if name.endswith("data.pkl")] * 6)
    members[chosen] = raw(rng, members[chosen], [*members.values()])
    made = io.BytesIO()
    with zipfile.ZipFile(
        made, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    ) as out:
        for name, content in members.items():
            out.writestr(name, content)
    return made.getvalue()


def mixed(*parts: tuple[int, Mutator]) -> Mutator:
    """One of several, by weight."""
    weights = [weight for weight, _ in parts]

    def mutate(rng: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
        return rng.choices(parts, weights)[0][1](rng, data, seeds)

    return mutate
