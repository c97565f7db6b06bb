"""`llm` of cgins.yaml, and the options that come before it: who is asked, what it may cost, how mistakes are told."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_cgins.config import load
from pytest_cgins.config.llm import UNPAID, Budget, LlmSettings, Models, Price, Temperatures, looks_like_key
from pytest_cgins.config.llm_options import overridden
from pytest_cgins.core.errors import ConfigError

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
NONE = "llm has no"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(folder: Path, llm: str | None) -> LlmSettings | None:
    """A file with one kernel; `llm` is what stands in the section, None for no section."""
    lines = ["version: 1", *([f"llm: {{{llm}}}"] if llm is not None else [])]
    lines += ["kernels: {it: {op: torch.mul, device: cpu, target: 'a:b'}}"]
    (folder / "cgins.yaml").write_text("\n".join(lines), encoding="utf-8")
    return load(folder / "cgins.yaml").llm


def said(folder: Path, llm: str) -> LlmSettings:
    found = read(folder, llm)
    assert found is not None
    return found


def refused(folder: Path, llm: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read(folder, llm)
    return caught.value


def test_no_section(folder: Path) -> None:
    """A file that only gates says nothing of models."""
    assert read(folder, None) is None


def test_the_shortest_section(folder: Path) -> None:
    """A provider and a model are enough; the helper is the generator, nobody verifies, no price is known."""
    assert said(folder, "provider: openai, model: m") == LlmSettings(
        provider="openai",
        api_key_env="OPENAI_API_KEY",
        models=Models(generator=("m",), helper=("m",), verifier=()),
        max_answer_tokens=16_000,
        stream=True,
        timeout_s=300.0,
        budget=Budget(repair_attempts=5, rounds=3, branches=4, tokens=1_000_000, usd=None, minutes=120.0),
        runs=folder / ".cgins/runs",
    )


def test_every_key(folder: Path) -> None:
    """All that can be said arrives."""
    found = said(
        folder,
        "provider: compatible, base_url: 'https://[::1]:8000/v1', api_key_env: my_key, "
        "models: {generator: [a/b, 'c:d'], helper: e, verifier: [f]}, temperature: {generator: 0.7, helper: 1e-1}, "
        "max_answer_tokens: 4000, stream: false, timeout_s: 12.5, runs: ../runs, "
        "budget: {repair_attempts: 2, side_by_side: 3, rounds: 1, branches: 8, generations: 2, tokens: 5000, usd: 1.5, minutes: 0.5}, "
        "prices: {a/b: {input: 1, output: 2}, 'c:d': {input: 0, output: 0}, e: {input: 1, output: 2, cached_input: 0.1}, "
        "f: {input: 1, output: 2}, unused: {input: 1e2, output: 2e2}}",
    )
    assert found == LlmSettings(
        provider="compatible",
        base_url="https://[::1]:8000/v1",
        api_key_env="my_key",
        models=Models(generator=("a/b", "c:d"), helper=("e",), verifier=("f",)),
        temperature=Temperatures(generator=0.7, helper=0.1, verifier=None),
        max_answer_tokens=4000,
        stream=False,
        timeout_s=12.5,
        budget=Budget(
            repair_attempts=2,
            side_by_side=3,
            rounds=1,
            branches=8,
            generations=2,
            tokens=5000,
            usd=1.5,
            minutes=0.5,
        ),
        prices={
            "a/b": Price(input_usd_per_million_tokens=1, output_usd_per_million_tokens=2),
            "c:d": Price(input_usd_per_million_tokens=0, output_usd_per_million_tokens=0),
            "e": Price(
                input_usd_per_million_tokens=1,
                output_usd_per_million_tokens=2,
                cached_input_usd_per_million_tokens=0.1,
            ),
            "f": Price(input_usd_per_million_tokens=1, output_usd_per_million_tokens=2),
            "unused": Price(input_usd_per_million_tokens=100, output_usd_per_million_tokens=200),
        },
        runs=folder.parent / "runs",
    )
    assert found.models.names == ("a/b", "c:d", "e", "f")


@pytest.mark.parametrize(
    ("provider", "variable"), [("openai", "OPENAI_API_KEY"), ("gemini", "GOOGLE_API_KEY"), ("ollama", "")]
)
def test_keys_by_provider(folder: Path, provider: str, variable: str) -> None:
    """Each provider has its own variable, and another can be named; the address stays the provider's."""
    assert said(folder, f"provider: {provider}, model: m").api_key_env == variable
    assert said(folder, f"provider: {provider}, model: m").base_url == ""
    assert said(folder, f"provider: {provider}, model: m, api_key_env: MY_SECRET").api_key_env == "MY_SECRET"
    assert said(folder, f"provider: {provider}, model: m, base_url: 'http://h/v1'").base_url == "http://h/v1"
    assert said(folder, "provider: compatible, model: m, base_url: 'http://h/v1'").api_key_env == ""


def test_without_a_server(folder: Path) -> None:
    """Recordings and files need no model, and have no limits that nobody wrote; folders need not be there."""
    found = said(folder, "provider: replay, path: talks")
    assert (found.path, found.models, found.budget) == (folder / "talks", Models(), UNPAID)
    assert not found.asks_server
    assert said(folder, "provider: exchange").path == folder / ".cgins/exchange"
    assert said(folder, "provider: exchange, path: /x/../y, budget: {usd: 5, rounds: 1}") == LlmSettings(
        provider="exchange",
        path=Path("/y"),
        budget=replace(UNPAID, usd=5.0, rounds=1),
        runs=folder / ".cgins/runs",
    )
    assert said(folder, "provider: replay, path: x, models: {generator: [a, b]}").models.helper == ("a",)


def test_limits_switched_off(folder: Path) -> None:
    """`none` takes a default limit away."""
    found = said(folder, "provider: ollama, model: m, budget: {tokens: none, usd: none, minutes: none}")
    assert found.budget == Budget(tokens=None, usd=None, minutes=None)


def test_one_temperature(folder: Path) -> None:
    """A single temperature is that of all roles."""
    found = said(folder, "provider: ollama, model: m, temperature: 0.5")
    assert found.temperature == Temperatures(generator=0.5, helper=0.5, verifier=0.5)


O = "provider: openai, model: m, "  # noqa: E741
C = "provider: compatible, model: m, "


@pytest.mark.parametrize(
    ("llm", "what", "remedy"),
    [
        ("", 'llm has no "provider"', "add provider: openai or gemini or ollama or compatible or replay or exchange"),
        ("provider: opanai, model: m", '"provider" in llm is "opanai"', 'did you mean "openai"?'),
        ("provider: claude, model: m", '"provider" in llm is "claude"', "openai, gemini, ollama, compatible, replay or exchange"),
        (O + "modle: m", 'unknown key "modle" in llm', 'did you mean "model"?'),
        (O + "budget: {usds: 1}", 'unknown key "usds" in budget of llm', 'did you mean "usd"?'),
        (O + "temperature: {helpr: 1}", 'unknown key "helpr" in temperature of llm', 'did you mean "helper"?'),
        (O + "prices: {m: {inputs: 1, output: 1}}", 'unknown key "inputs" in price of model "m"', 'did you mean "input"?'),
        (O + "models: {generator: n}", "llm has both model and models", "keep models: {generator: …}, or model"),
        ("provider: openai, models: {helper: n}", 'models of llm has no "generator"', "add generator: NAME"),
        ("provider: openai, models: {generater: n}", 'unknown key "generater" in models of llm', 'did you mean "generator"?'),
        ("provider: openai, models: {generator: []}", '"generator" in models of llm is empty', "name at least one model"),
        ("provider: openai, models: {generator: [a, a]}", '"generator" in models of llm has \'a\' twice, first in line 2', "write it once"),
        ("provider: openai, model: ' '", '"model" in llm is text', "text that is not empty"),
        ("provider: openai, model: 4", '"model" in llm is a whole number (4)', "text that is not empty"),
        ("provider: openai, model: [a, b]", '"model" in llm is a list', "write text"),
        ('provider: openai, model: "a\\nb"', '"model" in llm is not a model name', "at most 200 characters that can be printed"),
        (f"provider: openai, model: {'m' * 201}", '"model" in llm is not a model name', "at most 200 characters"),
        ("provider: openai", "llm has no model, which provider openai needs", "add model: NAME"),
        ("provider: gemini", "llm has no model, which provider gemini needs", "add model: NAME"),
        ("provider: ollama", "llm has no model, which provider ollama needs", "add model: NAME"),
        ("provider: compatible, base_url: 'http://h'", "llm has no model, which provider compatible needs", "add model: NAME"),
        ("provider: compatible, model: m", "llm has no base_url, which provider compatible needs", "add base_url: http://localhost:8000/v1"),
        ("provider: replay", "llm has no path, which provider replay needs", "add path: FOLDER"),
        (O + "path: x", '"path" in llm has no effect in llm: its provider is openai'.replace(" in llm has", " has"), "it goes with replay and exchange"),
        ("provider: exchange, base_url: 'http://h'", '"base_url" has no effect in llm: its provider is exchange', "it goes with openai, gemini, ollama, compatible"),
        ("provider: replay, path: x, api_key_env: K", '"api_key_env" has no effect in llm: its provider is replay', "remove it"),
        ("provider: exchange, stream: true", '"stream" has no effect in llm', "remove it"),
        ("provider: exchange, timeout_s: 3", '"timeout_s" has no effect in llm', "remove it"),
        ('provider: exchange, path: "a\\0b"', '"path" in llm is not a folder name', "write e.g. .cgins/exchange"),
        (O + 'runs: "a\\0b"', '"runs" in llm is not a folder name', "write e.g. .cgins/runs"),
        (C + "base_url: localhost:8000", '"base_url" in llm is not a server address', "http://localhost:8000/v1"),
        (C + "base_url: 'ftp://h/v1'", '"base_url" in llm is not a server address', "http://localhost:8000/v1"),
        (C + "base_url: 'http://'", '"base_url" in llm is not a server address', "http://localhost:8000/v1"),
        (C + "base_url: 'http://h:x/'", '"base_url" in llm is not a server address', "http://localhost:8000/v1"),
        (C + "base_url: 'http://[::1/'", '"base_url" in llm is not a server address', "http://localhost:8000/v1"),
        (C + "base_url: 'http://h /'", '"base_url" in llm is not a server address', "http://localhost:8000/v1"),
        (C + "base_url: 'http://h/?a=b'", '"base_url" in llm has a ? or # in it, after which no path can follow', "http://localhost:8000/v1"),
        (C + "base_url: 'http://u:p@h/'", '"base_url" in llm has a name or password in it', "api_key_env: MY_API_KEY"),
        (O + "api_key: x", '"api_key" in llm: a key is never written into this file', "put the key into an environment variable"),
        (O + "api_key_env: MY-KEY", '"api_key_env" in llm is not a variable name', "write a name such as MY_API_KEY, never the key"),
        (O + "api_key_env: AI_LOGIN", '"api_key_env" in llm is AI_LOGIN, which does not look like the name of a secret', "a name that ends in _API_KEY"),
        (O + "api_key_env: 12", '"api_key_env" in llm is not a variable name', "never the key"),
        (O + "api_key_env:", '"api_key_env" in llm is not a variable name', "never the key"),
        (O + "api_key_env: [a]", '"api_key_env" in llm is not a variable name', "never the key"),
        (O + "temperature: hot", '"temperature" in llm is text (hot), not a finite number of at least 0', "write a finite number"),
        (O + "temperature: 2.1", '"temperature" in llm is 2.1, not within 0 to 2', "write 0 to 2"),
        (O + "temperature: {helper: -1}", '"helper" in temperature of llm is a whole number (-1), not a finite number', "at least 0"),
        (O + "max_answer_tokens: 255", '"max_answer_tokens" in llm is 255, not within 256 to 1000000', "write 256 to 1000000"),
        (O + "max_answer_tokens: many", '"max_answer_tokens" in llm is text (many), not a whole number', "a whole number"),
        (O + "stream: 1", '"stream" in llm is a whole number (1), not true or false', "true or false"),
        (O + "timeout_s: 0", '"timeout_s" in llm is 0, not within 1 to 86400', "write 1 to 86400"),
        (O + "budget: 5", '"budget" in llm is a whole number (5), not a mapping', "write a mapping"),
        (O + "budget: {repair_attempts: 0}", '"repair_attempts" in budget of llm is 0, not within 1 to 1000', "write 1 to 1000"),
        (O + "budget: {rounds: none}", '"rounds" in budget of llm is text (none), not a whole number', "a whole number"),
        (O + "budget: {branches: 1001}", '"branches" in budget of llm is 1001', "write 1 to 1000"),
        (O + "budget: {tokens: 0}", '"tokens" in budget of llm is 0, not within 1 to 1000000000000', "write 1 to"),
        (O + "budget: {tokens: 1e6}", '"tokens" in budget of llm is text (1e6), not a whole number', "a whole number"),
        (O + "budget: {usd: 0}", '"usd" in budget of llm is 0, not above 0 and up to 1e+06', "a number above 0, or none for no limit"),
        (O + "budget: {usd: .nan}", '"usd" in budget of llm is a number (.nan), not a finite number', "at least 0"),
        (O + "budget: {minutes: -1}", '"minutes" in budget of llm is a whole number (-1), not a finite', "at least 0"),
        (O + "budget: {minutes: .inf}", '"minutes" in budget of llm is a number (.inf), not a finite', "at least 0"),
        (O + "prices: {m: 3}", '"m" in prices of llm is a whole number (3), not a mapping', "write a mapping"),
        (O + "prices: {m: {input: 1}}", 'price of model "m" has no "output"', "add output: USD per million tokens"),
        (O + "prices: {m: {output: 1}}", 'price of model "m" has no "input"', "add input: USD per million tokens"),
        (O + "prices: {m: {input: .nan, output: 1}}", '"input" in price of model "m" is a number (.nan), not a finite', "at least 0"),
        (O + "prices: {m: {input: 1, output: -1}}", '"output" in price of model "m" is a whole number (-1), not a finite', "at least 0"),
        (O + "prices: {m: {input: 1, output: 2e6}}", '"output" in price of model "m" is 2e6, not within 0 to 1000000', "write 0 to 1000000"),
        (O + "prices: {m: {input: 1, output: 1, cached_input: nan}}", '"cached_input" in price of model "m" is text (nan)', "at least 0"),
        (O + "prices: {' m': {input: 1, output: 1}}", "a name in prices of llm is not a model name", "that can be printed"),
        (O + "budget: {usd: 5}", 'the budget is 5 USD, and model "m" has no price', 'add llm.prices: {"m": {input: …, output: …}}, in USD per million tokens, or drop budget.usd'),
        ("provider: openai, models: {generator: a, verifier: b}, prices: {a: {input: 1, output: 1}}, budget: {usd: .5}",
         'the budget is 0.5 USD, and model "b" has no price', 'llm.prices: {"b"'),
    ],
)  # fmt: skip
def test_mistakes(folder: Path, llm: str, what: str, remedy: str) -> None:
    """A wrong value is an error with file, line, value and remedy."""
    error = refused(folder, llm)
    assert error.what.startswith("cgins.yaml:2: ")
    assert what in error.what
    assert remedy in error.remedy


def test_mistakes_have_their_own_line(folder: Path) -> None:
    """Deep in the section the line is that of the key."""
    text = "version: 1\nllm:\n  provider: openai\n  model: m\n  budget:\n    tokens: 5\n    usd: 3\nkernels: {}\n"
    (folder / "cgins.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"^cgins\.yaml:7: the budget is 3 USD"):
        load(folder / "cgins.yaml")


# Made up, and of the shapes that providers use.
KEYS = [
    "sk-" + "a1B2" * 12,
    "sk-proj-" + "x_Y-9" * 8,
    "sk_live_" + "q7" * 12,
    "AIza" + "Sy0-_aB" * 5,
    "gsk_" + "Zz9" * 16,
    "hf_" + "abcdefghijklmnopqrstuvwxyz",
    "ghp_" + "0aA" * 12,
    "eyJhbGciOiJub25lIn0." + "e30" * 6,
    "0123456789abcdef" * 2,
    "a3f" * 11,
    "Zk9" * 14,
    "MY_KEY_" + "4f6d" * 8,
]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    "place",
    [
        "api_key_env: '{}'",
        "api_key: '{}'",
        "base_url: 'https://x:{}@h/v1'",
        "base_url: 'https://h/v1?key={}'",
    ],
)
def test_keys_are_refused_and_not_repeated(folder: Path, key: str, place: str) -> None:
    """A key in the file is an error that says what to do, in which no part of the key is to be read."""
    error = refused(folder, O + place.format(key))
    assert error.remedy
    for start in range(len(key) - 7):
        assert key[start : start + 8] not in str(error)
    if place.startswith("api_key_env"):
        assert (
            error.what
            == 'cgins.yaml:2: "api_key_env" in llm looks like a key itself, and is not repeated here'
        )
        assert "api_key_env: MY_API_KEY" in error.remedy


def test_a_key_for_a_model(folder: Path) -> None:
    """Nor is one repeated that stands where a model's name should."""
    for llm in (f"provider: openai, model: {KEYS[0]}", O + f"prices: {{{KEYS[0]}: 1}}"):
        error = refused(folder, llm)
        assert "looks like an API key" in error.what
        assert KEYS[0] not in str(error)


@pytest.mark.parametrize(
    "name",
    ["OPENAI_API_KEY", "GOOGLE_API_KEY", "MY_ORGANISATION_OPENAI_API_KEY_2024", "hf_token", "sk_key", "_k_KEY",
     "OPENAIAPIKEYOFPRODUCTION2", "openrouterapikeyproduction", "AIza_KEY"],
)  # fmt: skip
def test_names_are_names(folder: Path, name: str) -> None:
    """Names of variables are taken for what they are, long ones and small ones."""
    assert not looks_like_key(name)
    assert said(folder, O + f"api_key_env: {name}").api_key_env == name


MODELS = ["gpt-4o-2024-08-06", "llama3.2:latest", "Qwen/Qwen2.5-Coder-32B-Instruct-AWQ", "models/gemini-2.5-pro",
          "accounts/x/models/y#z", "My Model 7B (Q4_K_M).gguf", "0123456789abcdef0123456789abcdef"]  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_names_of_models(folder: Path, name: str) -> None:
    """Models are named as their servers name them."""
    assert said(folder, f"provider: ollama, model: '{name}'").models.generator == (name,)


SETTINGS = LlmSettings(
    provider="openai",
    base_url="http://proxy/v1",
    api_key_env="MY_SECRET",
    models=Models(generator=("a", "b"), helper=("c",), verifier=("d",)),
    budget=Budget(tokens=7),
    runs=Path("/runs"),
)


def over(llm: str = "", model: str = "", below: LlmSettings | None = SETTINGS) -> LlmSettings | None:
    return overridden(below, llm=llm, model=model, root=Path("/project"), here=Path("/here"))


def test_no_option() -> None:
    """Without an option the file holds."""
    assert over() is SETTINGS
    assert over(below=None) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("round=2", 'unknown key "round" in --cgins-budget\n→ did you mean "rounds"?'),
        ("rounds=0", '"rounds" in --cgins-budget is 0, not within 1 to 1000\n→ write 1 to 1000'),
        ("rounds=2,rounds=3", 'key "rounds" of --cgins-budget is there twice'),
        ("usd=1", "--cgins-budget: the budget is 1 USD, and model"),
        ("}", "--cgins-budget:1: not YAML"),
    ],
)
def test_limits_of_the_command_line_that_cannot_be_meant(text: str, problem: str) -> None:
    """Named like the keys of the file, and refused like them."""
    with pytest.raises(ConfigError) as error:
        overridden(SETTINGS, budget=text, root=Path("/project"), here=Path("/here"))
    assert problem in str(error.value)


def test_limits_of_the_command_line() -> None:
    """They come before the file's; others stay."""
    found = overridden(SETTINGS, budget="rounds=2,tokens=none", root=Path("/project"), here=Path("/here"))
    assert found == replace(SETTINGS, budget=replace(SETTINGS.budget, rounds=2, tokens=None))


def test_the_same_provider() -> None:
    """Who names the file's own provider keeps all that the file says, but for the address, if there is one."""
    assert over("openai") == SETTINGS
    assert over("openai:http://h/v1") == replace(SETTINGS, base_url="http://h/v1")
    replayed = replace(SETTINGS, provider="replay", base_url="", api_key_env="", path=Path("/talks"))
    assert over("replay", below=replayed) == replayed


def test_another_provider() -> None:
    """Another provider gets neither the address nor the key nor the models of the former one."""
    assert over("gemini", "m") == replace(
        SETTINGS, provider="gemini", base_url="", api_key_env="GOOGLE_API_KEY", models=Models(generator=("m",), helper=("m",))
    )  # fmt: skip
    found = over("compatible:http://localhost:1234/v1", "m")
    assert found is not None
    assert (found.base_url, found.api_key_env) == ("http://localhost:1234/v1", "")
    assert over("exchange") == replace(
        SETTINGS, provider="exchange", base_url="", api_key_env="", models=Models(), path=Path("/project/.cgins/exchange")
    )  # fmt: skip


def test_replay_knows_the_models() -> None:
    """A recording is asked for the models that the file names."""
    assert over("replay:talks/../x") == replace(
        SETTINGS, provider="replay", base_url="", api_key_env="", path=Path("/here/x")
    )


def test_without_a_file() -> None:
    """Two options are enough where the file says nothing; replay and exchange need one."""
    assert over("ollama", "m", below=None) == LlmSettings(
        provider="ollama", models=Models(generator=("m",), helper=("m",)), runs=Path("/project/.cgins/runs")
    )
    assert over("replay:/talks", below=None) == LlmSettings(
        provider="replay", path=Path("/talks"), budget=UNPAID, runs=Path("/project/.cgins/runs")
    )
    found = over("exchange:x", below=None)
    assert found is not None
    assert found.path == Path("/here/x")


def test_another_model() -> None:
    """A model is asked in every role in which anybody is."""
    assert over(model="m") == replace(
        SETTINGS, models=Models(generator=("m",), helper=("m",), verifier=("m",))
    )
    quiet = replace(SETTINGS, models=Models(generator=("a",), helper=("a",)))
    assert over(model="m", below=quiet) == replace(SETTINGS, models=Models(generator=("m",), helper=("m",)))


@pytest.mark.parametrize(
    ("llm", "model", "below", "what", "remedy"),
    [
        ("opnai", "", SETTINGS, "--cgins-llm does not begin with a provider", 'did you mean "openai"?'),
        ("zzz", "", SETTINGS, "--cgins-llm does not begin with a provider", "write openai, gemini, ollama, compatible, replay or exchange"),
        (KEYS[0], "", SETTINGS, "--cgins-llm does not begin with a provider", "write openai, gemini"),
        ("openai:", "", SETTINGS, "--cgins-llm=openai: ends in a colon", "write what follows it, or leave it out"),
        ("openai:h", "", SETTINGS, "--cgins-llm=openai with an address that is not a server address", "http://localhost:8000/v1"),
        ("openai:http://u:p@h", "", SETTINGS, "--cgins-llm=openai with an address that has a name or password in it", "api_key_env"),
        ("gemini", "", SETTINGS, "--cgins-llm=gemini without the name of a model", "add --cgins-model=NAME"),
        ("compatible", "m", SETTINGS, "--cgins-llm=compatible without an address", "write --cgins-llm=compatible:http://localhost:8000/v1"),
        ("replay", "", SETTINGS, "--cgins-llm=replay without a folder", "write --cgins-llm=replay:FOLDER, with the recorded"),
        ("exchange:http://h", "", SETTINGS, "--cgins-llm=exchange with something that is not a folder", "write --cgins-llm=exchange:FOLDER"),
        ("", "m", None, "--cgins-model names a model, and nothing says whose it is", "add --cgins-llm=PROVIDER, or the section llm to cgins.yaml"),
        ("", " m", SETTINGS, "--cgins-model has a value that is not a model name", "characters that can be printed"),
        ("", KEYS[0], SETTINGS, "--cgins-model has a value that looks like an API key", "write the name of a model"),
        ("", "m", replace(SETTINGS, budget=Budget(usd=5)), '--cgins-model: the budget is 5 USD, and model "m" has no price', "or drop budget.usd"),
        ("openai", "", replace(SETTINGS, budget=Budget(usd=5)), '--cgins-llm: the budget is 5 USD, and model "a" has no price', "or drop budget.usd"),
    ],
)  # fmt: skip
def test_mistakes_of_options(llm: str, model: str, below: LlmSettings | None, what: str, remedy: str) -> None:
    """A wrong option is an error that names it, and repeats no key."""
    with pytest.raises(ConfigError) as caught:
        over(llm, model, below)
    assert caught.value.what == what
    assert remedy in caught.value.remedy
    assert KEYS[0] not in str(caught.value)


JUNK = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)
VALUES = st.one_of(
    st.floats().map(repr), st.integers().map(str), JUNK,
    st.sampled_from(["none", "openai", "exchange", "replay", "ollama", "http://h/v1", "KEY", "true", "m", "[m, n]", "~",
                     "{generator: m}", "{m: {input: 1, output: 2}}", "{usd: 5}", "{tokens: 100}", "{}", "[]"]),
)  # fmt: skip
NAMES = st.sampled_from(
    ["provider", "base_url", "api_key_env", "path", "model", "models", "temperature", "max_answer_tokens", "stream",
     "timeout_s", "budget", "prices", "runs"]
)  # fmt: skip


def outcome(read: Callable[[], LlmSettings | None]) -> tuple[ConfigError | None, LlmSettings | None]:
    try:
        return None, read()
    except ConfigError as error:
        return error, None


@QUICK
@given(st.dictionaries(NAMES, VALUES, max_size=6), st.booleans())
def test_anything_is_settings_or_an_error(folder: Path, llm: dict[str, str], named: bool) -> None:
    """Whatever is written, there is an error of ours, or settings with which a run can begin."""
    section = {"provider": "ollama", "model": "m", **llm} if named else llm
    error, found = outcome(
        lambda: said(folder, ", ".join(f"{key}: {value}" for key, value in section.items()))
    )
    if error is not None or found is None:
        assert error is not None
        assert error.what.startswith("cgins.yaml")
        assert error.remedy
        return
    assert found.models.generator
    assert found.models.helper
    assert not found.asks_server or all(found.models.names)
    assert (found.path is None) == found.asks_server
    assert found.runs.is_absolute()
    assert found.budget.usd is None or not found.unpriced
    assert all(math.isfinite(price.input_usd_per_million_tokens) for price in found.prices.values())


@QUICK
@given(JUNK, JUNK, st.sampled_from([None, SETTINGS]))
def test_any_option_is_settings_or_an_error(llm: str, model: str, below: LlmSettings | None) -> None:
    """Whatever is given for the options, there is an error of ours, or settings."""
    for words in (llm, f"openai:{llm}", f"replay:{llm}", f"exchange:{llm}"):
        error, found = outcome(lambda words=words: over(words, model, below))
        assert error is None or error.remedy
        assert error is not None or found is not None or not (words or model)
