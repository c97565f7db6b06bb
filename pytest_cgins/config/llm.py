"""`llm` of cgins.yaml: which model is asked for kernels, what that may cost, and what may be wrong with both.

Each check gives what is wrong and the remedy, or None. Whatever may be an API key by mistake is never repeated in a
message. `config.llm_options` has the options that come before the section.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pytest_cgins.config.document import Section, Value, Wrong, between, keys, one_of
from pytest_cgins.config.provider_presets import PRESETS, SERVERS, Preset
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.options import PROVIDERS, RUNS_FOLDER, Policy, Provider
from pytest_cgins.core.secrets import is_secret

ROLES = ("generator", "helper", "verifier")
"""For a kernel; for advice on a failure; for an opinion before hardware is used."""

EXCHANGE_FOLDER = ".cgins/exchange"
"""Where prompts and answers lie for `exchange`, below the folder of cgins.yaml."""

EXAMPLE_URL = "http://localhost:8000/v1"
VARIABLE_REMEDY = "put the key into an environment variable, and name that: api_key_env: MY_API_KEY"
MOST_MODEL_CHARACTERS = 200
MOST_LIMIT = 1e6

_URL_REMEDY = f"write one such as {EXAMPLE_URL}"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_KEY_PREFIX = re.compile(
    r"(?:(?:sk|pk|rk|gsk|hf|gh[pousr]|xai|r8|nvapi|glpat)[-_]|AIza|github_pat_|eyJ).{16}"
)
_RANDOM = re.compile(r"(?=[A-Za-z0-9]{20})[A-Za-z]*[0-9]+[A-Za-z]")
_usd = between(0, 1_000_000, Value.amount)


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """Who is asked, by role, as the provider names them; "" for a person, an agent or a recording."""

    generator: Annotated[tuple[str, ...], _model_names] = ("",)
    """For kernels; several for an ensemble. At least one."""
    helper: Annotated[tuple[str, ...], _model_names] = ("",)
    """For advice on a failure; the first generator where none is named. At least one."""
    verifier: Annotated[tuple[str, ...], _model_names] = ()
    """For an opinion before hardware is used; empty where nobody is asked."""

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, each once."""
        return tuple(dict.fromkeys((*self.generator, *self.helper, *self.verifier)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Temperatures:
    """Sampling temperatures by role; None for the provider's default."""

    generator: Annotated[float | None, between(0, 2, Value.amount)] = None
    """0 to 2."""
    helper: Annotated[float | None, between(0, 2, Value.amount)] = None
    """0 to 2."""
    verifier: Annotated[float | None, between(0, 2, Value.amount)] = None
    """0 to 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a run may take, over all its parts if it is resumed. All are hard."""

    repair_attempts: Annotated[int, between(1, 1000)] = 5
    """Answers of the generator for each implementation that is wrong."""
    side_by_side: Annotated[int, between(1, 1000)] = 2
    """Answers that a repair, and policies `refine` and `mcts`, ask for at once where they begin; the best goes on."""
    candidates: Annotated[int, between(1, 1000)] = 60
    """Answers of the generator for each implementation that is to become faster: ten generations of `evolve`."""
    rounds: Annotated[int, between(1, 1000)] = 3
    """Rounds of policy `branch`."""
    branches: Annotated[int, between(1, 1000)] = 4
    """Candidates of a round of policy `branch`."""
    generations: Annotated[int, between(1, 1000)] = 10
    """Generations of policy `evolve`."""
    tokens: Annotated[int | None, _tokens] = 1_000_000
    """Tokens of all prompts and answers; None for no limit."""
    usd: Annotated[float | None, _limit] = None
    """Money, by `LlmSettings.prices`; None for no limit."""
    minutes: Annotated[float | None, _limit] = 120.0
    """Wall time; None for no limit."""


UNPAID = Budget(tokens=None, minutes=None, side_by_side=1)
"""The default budget of `replay` and `exchange`, where nobody is paid by the run, and one answers at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price(Document):
    """What a model costs, as the user entered it."""

    input_usd_per_million_tokens: Annotated[float, _usd, "input"]
    """Tokens of prompts."""
    output_usd_per_million_tokens: Annotated[float, _usd, "output"]
    """Tokens of answers, those of hidden thought among them."""
    cached_input_usd_per_million_tokens: Annotated[float | None, _usd, "cached_input"] = None
    """Tokens of prompts that the provider had cached; None: as the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmSettings:
    """The section `llm`, with all defaults filled in."""

    provider: Annotated[Provider, one_of(Provider)]
    """Who answers."""
    base_url: Annotated[str, _base_url] = ""
    """Begin of the addresses of the server; "" for the provider's own."""
    api_key_env: Annotated[str, _api_key_env] = ""
    """Name of the variable with the key, never the key; "" where none is sent."""
    path: Annotated[Path | None, _folder] = None
    """Absolute folder of `replay` and `exchange`, which need not be there; None for the others."""
    models: Annotated[Models, _models] = Models()
    """Who is asked."""
    temperature: Annotated[Temperatures, _temperatures] = Temperatures()
    """How they are sampled."""
    max_answer_tokens: Annotated[int, between(256, 1_000_000)] = 16_000
    """Most tokens of one answer, those of hidden thought among them."""
    policy: Annotated[Policy, one_of(Policy)] = "refine"
    """How a faster kernel is searched for."""
    stream: Annotated[bool, Value.boolean] = True
    """Whether answers are taken word by word, so that a hang is seen early."""
    timeout_s: Annotated[float, between(1, 86_400, Value.amount)] = 300.0
    """Most seconds of one answer."""
    budget: Annotated[Budget, _budget] = Budget()
    """What a run may take."""
    prices: Annotated[Mapping[str, Price], _prices] = field(default_factory=dict)
    """By name of the model; none are built in."""
    runs: Annotated[Path, _folder]
    """Absolute folder of the journals, which need not be there."""

    @property
    def asks_server(self) -> bool:
        """Whether prompts go over HTTP, be it to a server of this machine."""
        return self.provider in SERVERS

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Models without a price, those left out that are nobody's."""
        return tuple(name for name in self.models.names if name and name not in self.prices)


def provider_defaults(provider: Provider, root: Path) -> LlmSettings:
    """The settings of a provider that is only named; `root` is the folder of cgins.yaml."""
    return LlmSettings(
        provider=provider,
        api_key_env=PRESETS.get(provider, Preset("")).api_key_env,
        path=root / EXCHANGE_FOLDER if provider == "exchange" else None,
        budget=Budget() if provider in SERVERS else UNPAID,
        runs=root / RUNS_FOLDER,
    )


def looks_like_key(text: str) -> bool:
    """Whether a text is rather an API key than the name of a variable or of a model."""
    parts = re.split(r"[^A-Za-z0-9]+", text)
    return bool(_KEY_PREFIX.match(text)) or any(_RANDOM.match(part) for part in parts)


def wrong_with_url(text: str) -> Wrong:
    """What is wrong with the address of a server, and the remedy."""
    try:
        parts = urlsplit(text)
        host, secret, port = parts.hostname, "@" in parts.netloc, parts.port
    except ValueError:
        return "is not a server address", _URL_REMEDY
    if secret:
        return "has a name or password in it", VARIABLE_REMEDY
    if "?" in text or "#" in text:
        return "has a ? or # in it, after which no path can follow", _URL_REMEDY
    if parts.scheme not in ("http", "https") or not host or port == 0 or re.search(r"[\s\\]", text):
        return "is not a server address", _URL_REMEDY
    return None


def wrong_with_model(name: str) -> Wrong:
    """What is wrong with the name of a model, and the remedy."""
    if _KEY_PREFIX.match(name):
        return "looks like an API key", "write the name of a model, as its provider has it"
    if len(name) > MOST_MODEL_CHARACTERS or name != name.strip() or not name.isprintable() or not name:
        return (
            "is not a model name",
            f"write at most {MOST_MODEL_CHARACTERS} characters that can be printed",
        )
    return None


def wrong_with_variable(text: str) -> Wrong:
    """What is wrong with the name of a variable that holds a key."""
    if looks_like_key(text):
        return "looks like a key itself, and is not repeated here", VARIABLE_REMEDY
    if not _VARIABLE.fullmatch(text):
        return "is not a variable name", "write a name such as MY_API_KEY, never the key"
    if not is_secret(text):
        # Those that look like secrets are kept from kernels and compilers.
        return (
            f"is {text}, which does not look like the name of a secret",
            "give the variable a name that ends in _API_KEY",
        )
    return None


def without_price(settings: LlmSettings) -> Wrong:
    """That the budget limits money while a model has no price, and the remedy; None where all is well."""
    if settings.budget.usd is None or not settings.unpriced:
        return None
    name = settings.unpriced[0]
    return (
        f'the budget is {settings.budget.usd:g} USD, and model "{name}" has no price',
        f'add llm.prices: {{"{name}": {{input: …, output: …}}}}, in USD per million tokens, or drop budget.usd',
    )


SERVER_KEYS = ("base_url", "api_key_env", "stream", "timeout_s")
"""Without effect where no server is asked."""


def llm_settings(value: Value) -> LlmSettings:
    """The section `llm`.

    Raises:
        ConfigError: an unknown key, a key that is missing or without effect, or a value that cannot be meant; with
            file, line and remedy.
    """
    section = value.mapping("llm")
    _refuse_keys(section)
    provider = section.require("provider", remedy=f"add provider: {' or '.join(PROVIDERS)}").choice(
        *PROVIDERS
    )
    needs = {key: (provider in SERVERS, ", ".join(SERVERS)) for key in SERVER_KEYS}
    needs["path"] = (provider not in SERVERS, "replay and exchange")
    section.refuse_without_effect(needs, f"its provider is {provider}")
    fields = section.fields(LlmSettings, others=True)
    _require(section, provider)
    if "model" in section:
        name = (_model(section["model"]),)
        fields["models"] = Models(generator=name, helper=name)
    defaults = provider_defaults(provider, section.file.parent)
    fields["budget"] = replace(defaults.budget, **fields.get("budget", {}))
    settings = replace(defaults, **fields)
    wrong = without_price(settings)
    if wrong:
        section["budget"].mapping()["usd"].fail(wrong[0], remedy=wrong[1])
    return settings


def _refuse_keys(section: Section) -> None:
    for key in ("api_key", "key"):
        if key in section:
            section[key].fail(
                f'"{key}" in llm: a key is never written into this file', remedy=VARIABLE_REMEDY
            )
    section.refuse_unknown((*keys(LlmSettings), "model"))
    if "model" in section and "models" in section:
        section["model"].fail(
            "llm has both model and models",
            remedy="keep models: {generator: …}, or model, which is its short form",
        )


def _require(section: Section, provider: Provider) -> None:
    """Refuse a section without what its provider cannot do without."""
    needs = {
        "base_url": (provider == "compatible", f"add base_url: {EXAMPLE_URL}"),
        "path": (provider == "replay", "add path: FOLDER, with the recorded conversations"),
        "model": (provider in SERVERS and "models" not in section, "add model: NAME"),
    }
    for key, (needed, remedy) in needs.items():
        if needed and key not in section:
            section.fail(f"llm has no {key}, which provider {provider} needs", remedy=remedy)


def _base_url(value: Value) -> str:
    url = value.text().strip()
    value.check(wrong_with_url(url))
    return url


def _api_key_env(value: Value) -> str:
    # Not by Value.text(), whose message repeats the value.
    name = str(value.node.value) if value.is_a("str") else ""
    value.check(wrong_with_variable(name))
    return name


def _folder(value: Value) -> Path:
    """A folder that need not be there: a gate without regeneration does not touch it."""
    text = value.text()
    if not text.isprintable():
        example = RUNS_FOLDER if value.key == "runs" else EXCHANGE_FOLDER
        value.fail(f"{value.label} is not a folder name", remedy=f"write e.g. {example}")
    return Path(os.path.normpath(value.section.file.parent / text))


def _models(value: Value) -> Models:
    roles = value.mapping()
    names = roles.fields(Models)
    roles.require("generator", remedy="add generator: NAME")
    return Models(**{"helper": names["generator"][:1], **names})


def _model_names(value: Value) -> tuple[str, ...]:
    """A name, or a list of at least one."""
    if not value.is_a("seq"):
        return (_model(value),)
    names = value.distinct(_model)
    if not names:
        value.fail(f"{value.label} is empty", remedy="name at least one model")
    return names


def _model(value: Value) -> str:
    name = value.text()
    value.check(wrong_with_model(name))
    return name


def _temperatures(value: Value) -> Temperatures:
    if value.is_a("map"):
        return Temperatures(**value.mapping().fields(Temperatures))
    return Temperatures(**dict.fromkeys(ROLES, between(0, 2, Value.amount)(value)))


def _tokens(value: Value) -> int | None:
    return None if _is_none(value) else between(1, 10**12)(value)


def _limit(value: Value) -> float | None:
    if _is_none(value):
        return None
    amount = value.amount()
    if not 0 < amount <= MOST_LIMIT:
        value.refuse(
            f"not above 0 and up to {MOST_LIMIT:g}", remedy="write a number above 0, or none for no limit"
        )
    return amount


def _is_none(value: Value) -> bool:
    """Whether it says that there is no limit."""
    return value.scalar().strip() == "none"


def _budget(value: Value) -> dict[str, Any]:
    """What the section says; the rest depends on the provider."""
    return value.mapping().fields(Budget)


def _prices(value: Value) -> dict[str, Price]:
    section = value.mapping()
    return {name: _price(section[name]) for name in section}


def _price(value: Value) -> Price:
    value.check(wrong_with_model(value.key), "a name in prices of llm")
    section = value.mapping(f'price of model "{value.key}"')
    usd = section.fields(Price)
    for key in ("input", "output"):
        section.require(key, remedy=f"add {key}: USD per million tokens")
    return Price(**usd)
