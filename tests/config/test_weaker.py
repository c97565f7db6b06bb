"""Settings that are weaker than they were: each field of the configuration has a direction."""

from __future__ import annotations

import typing
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from pytest_cgins.config import Config, load, weaker
from pytest_cgins.config.weaker import RULES, neutral

STRICT = """\
version: 1
gate: {tolerate: 2%, catch: 5%, fail_on: inconclusive, floor_vs_torch: 0.9, alpha: 1%, beta: 1%, max_blocks: 128, cache: cold}
pull_request: {draft: true, reviewers: [ann, bob], team_reviewers: [kernels]}
llm:
  provider: openai
  models: {generator: a, helper: b, verifier: c}
  api_key_env: OPENAI_API_KEY
  max_answer_tokens: 9000
  budget: {repair_attempts: 3, candidates: 9, side_by_side: 2, rounds: 2, branches: 2, generations: 2, tokens: 1000, usd: 5, minutes: 9}
  prices:
    a: {input: 1, output: 1}
    b: {input: 1, output: 1}
    c: {input: 1, output: 1}
kernels:
  k:
    op: torch.mul
    reference: 'm:f'
    tolerance: {rtol: 1e-3, atol: 1e-5}
    gate: {registers: 2, spill_bytes: 4}
    claims: [strided]
    repeatable: {rtol: 1e-6, atol: 1e-6}
    semantics: {kind: norm, roles: {input: data}}
    ranks: {count: 4, replicated: [input]}
    implementations:
      - {name: cpp, device: cpu, source: k.cpp}
      - {name: cuda, source: k.cu, archs: [sm_80, sm_90]}
      - {name: triton, device: cpu, target: 'm:f'}
models:
  net: {make: 'm:net', kernels: [k/cpp, k/cuda]}
"""
LOOSER = {
    "k: gate.tolerate 0.02 → 0.04": ("tolerate: 2%", "tolerate: 4%"),
    "k: gate.catch 0.05 → 0.5": ("catch: 5%", "catch: 50%"),
    "k: gate.fail_on inconclusive → never": ("fail_on: inconclusive", "fail_on: never"),
    "k: gate.floor_vs_torch 0.9 → none": ("floor_vs_torch: 0.9", "floor_vs_torch: none"),
    "k: gate.alpha 0.01 → 0.0001": ("alpha: 1%", "alpha: 0.01%"),
    "k: gate.beta 0.01 → 0.5": ("beta: 1%", "beta: 50%"),
    "k: gate.max_blocks 128 → 10": ("max_blocks: 128", "max_blocks: 10"),
    "k: gate.cache cold → warm": ("cache: cold", "cache: warm"),
    "gate.baseline none → HEAD": ("gate: {tol", "gate: {baseline: HEAD, tol"),
    "pull_request.draft true → false": ("draft: true", "draft: false"),
    "pull_request.reviewers [ann, bob] → [ann]": ("[ann, bob]", "[ann]"),
    "pull_request.team_reviewers [kernels] → []": (", team_reviewers: [kernels]", ""),
    "llm.provider openai → compatible": ("provider: openai", "provider: compatible\n  base_url: 'https://a.b/v1'"),
    "llm.base_url none → https://a.b/v1": ("provider: openai", "provider: openai\n  base_url: 'https://a.b/v1'"),
    "llm.api_key_env OPENAI_API_KEY → OTHER_KEY": ("api_key_env: OPENAI_API_KEY", "api_key_env: OTHER_KEY"),
    "llm.max_answer_tokens 9000 → 9001": ("max_answer_tokens: 9000", "max_answer_tokens: 9001"),
    "llm.models.generator [a] → [b]": ("generator: a", "generator: b"),
    "llm.models.helper [b] → [c]": ("helper: b", "helper: c"),
    "llm.models.verifier [c] → [b]": ("verifier: c", "verifier: b"),
    "llm.budget.repair_attempts 3 → 4": ("repair_attempts: 3", "repair_attempts: 4"),
    "llm.budget.candidates 9 → 10": ("candidates: 9", "candidates: 10"),
    "llm.budget.rounds 2 → 3": ("rounds: 2", "rounds: 3"),
    "llm.budget.side_by_side 2 → 3": ("side_by_side: 2", "side_by_side: 3"),
    "llm.budget.branches 2 → 3": ("branches: 2", "branches: 3"),
    "llm.budget.generations 2 → 3": ("generations: 2", "generations: 3"),
    "llm.budget.tokens 1000 → none": ("tokens: 1000", "tokens: none"),
    "llm.budget.usd 5.0 → 500.0": ("usd: 5", "usd: 500"),
    "llm.budget.minutes 9.0 → 90.0": ("minutes: 9", "minutes: 90"),
    "llm.prices {a: 1.0, 1.0; b: 1.0, 1.0; c: 1.0, 1.0} → {a: 0.1, 1.0; b: 1.0, 1.0; c: 1.0, 1.0}": (
        "a: {input: 1,", "a: {input: 0.1,"
    ),
    "k: op torch.mul → torch.add": ("op: torch.mul", "op: torch.add"),
    "k: reference m:f → none": ("    reference: 'm:f'\n", ""),
    "k: tolerance.rtol 0.001 → 0.1": ("rtol: 1e-3", "rtol: 1e-1"),
    "k: tolerance.atol 1e-05 → 1.0": ("atol: 1e-5", "atol: 1.0"),
    "k: gate.registers 2 → 20": ("registers: 2", "registers: 20"),
    "k: gate.spill_bytes 4 → 400": ("spill_bytes: 4", "spill_bytes: 400"),
    "k: claims [strided] → []": ("    claims: [strided]\n", ""),
    "k: repeatable.rtol 1e-06 → 1.0": ("{rtol: 1e-6", "{rtol: 1.0"),
    "k: repeatable.atol 1e-06 → 1.0": ("atol: 1e-6", "atol: 1.0"),
    "k: repeatable.kind explicit → tolerance": ("repeatable: {rtol: 1e-6, atol: 1e-6}", "repeatable: tolerance"),
    "k: probes.repeat on → off (it is what it is)": (
        "    claims", "    probes: {repeat: {off: 'it is what it is'}}\n    claims",
    ),
    "k: precision.allow_tf32 false → true": ("    claims", "    precision: {allow_tf32: true}\n    claims"),
    "k: semantics.kind norm → softmax": ("kind: norm", "kind: softmax"),
    "k: semantics.mutated [] → [input]": ("kind: norm", "kind: norm, mutated: [input]"),
    "k: semantics.fixed [] → [('other', None)]": ("kind: norm", "kind: norm, fixed: [other]"),
    "k: ranks.count 4 → 2": ("count: 4", "count: 2"),
    "k: ranks.replicated [input] → [input, other]": ("replicated: [input]", "replicated: [input, other]"),
    "net: make m:net → m:other": ("make: 'm:net'", "make: 'm:other'"),
    "net: kernels [k/cpp, k/cuda] → [k/cpp]": ("kernels: [k/cpp, k/cuda]", "kernels: [k/cpp]"),
    "net: gate.tolerate 0.02 → 0.04": ("make: 'm:net'", "make: 'm:net', gate: {tolerate: 4%}"),
    "k/cuda: archs [sm_80, sm_90] → [sm_80]": ("[sm_80, sm_90]", "[sm_80]"),
    "k/triton: interpret false → true": ("target: 'm:f'", "target: 'm:f', interpret: true"),
}  # fmt: skip
"""Lines, and what in the file makes them. The other direction makes none, unless nobody knows which is the weaker one."""
BOTH_WAYS = ("cache", "llm.", "op ", "make", "semantics", "repeatable.kind")


def config(folder: Path, text: str) -> Config:
    folder.mkdir(exist_ok=True)
    (folder / "cgins.yaml").write_text(text)
    return load(folder / "cgins.yaml", require_sources=False)


@pytest.mark.parametrize("line", LOOSER)
def test_what_is_looser_is_told_and_what_is_stricter_is_not(tmp_path: Path, line: str) -> None:
    """With kernel, key, and both values."""
    old, new = LOOSER[line]
    assert old in STRICT
    before, now = config(tmp_path / "a", STRICT), config(tmp_path / "b", STRICT.replace(old, new, 1))
    assert line in weaker.weaker(before, now)
    assert weaker.weaker(before, before) == ()
    if not any(part in line for part in BOTH_WAYS):
        assert weaker.weaker(now, before) == ()


def test_defaults_are_the_strict_ones(tmp_path: Path) -> None:
    """To declare a tolerance, repeatability or a tolerated slowdown where nothing was declared is weaker."""
    short = "version: 1\nkernels:\n  k: {op: torch.mul, source: k.cpp%s}\n"
    before = config(tmp_path / "a", short % "")
    for said in (
        "tolerance: {rtol: 1e-9}",
        "repeatable: tolerance",
        "gate: {tolerate: 3%}",
        "gate: {registers: 0}",
    ):
        now = config(tmp_path / "b", short % f", {said}")
        assert weaker.weaker(before, now)
        assert weaker.weaker(now, before) == ()


def test_a_model_where_nobody_was_asked(tmp_path: Path) -> None:
    """A new section says where prompts go and with which key; a kernel that is new has no settings to weaken."""
    short = "version: 1\nkernels:\n  k: {op: torch.mul, source: k.cpp}\n"
    now = (
        short
        + "  new: {op: torch.add, source: k.cpp, tolerance: {rtol: 1}}\nllm: {provider: openai, model: m}\n"
    )
    found = weaker.weaker(config(tmp_path / "a", short), config(tmp_path / "b", now))
    assert {line.partition(" ")[0] for line in found} >= {
        "llm.provider",
        "llm.api_key_env",
        "llm.models.generator",
    }
    assert not any(line.startswith("new") for line in found)


def test_each_field_has_a_rule() -> None:
    """A new setting cannot be forgotten: neither a field, nor a class that a field is of."""
    reached, todo = set(), [Config]
    while todo:
        kind = todo.pop()
        reached.add(kind)
        hints = typing.get_type_hints(kind)
        assert set(RULES[kind]) == {field.name for field in fields(kind)}, kind.__name__
        for name, rule in RULES[kind].items():
            if rule is None:
                parts = [hints[name], *typing.get_args(hints[name])]
                inner = [one for one in parts if is_dataclass(one) and isinstance(one, type)]
                assert inner, f"{kind.__name__}.{name} has no rule and no classes"
                todo += inner
    assert reached == set(RULES)


def test_each_rule_is_tried() -> None:
    """What has a direction has an example of it above."""
    told = " ".join(LOOSER)
    for kind, rules in RULES.items():
        for name, rule in rules.items():
            if rule not in (None, neutral) and kind.__name__ != "Declared" and name != "kind":
                key = weaker.KEYS.get(name, name)
                assert f"{key} " in told, f"{kind.__name__}.{name}"
