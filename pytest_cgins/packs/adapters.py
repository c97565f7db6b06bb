"""Adapters: how objects that a trace cannot hold are written as plain trees, and made again from them.

Named tuples, and the caches and outputs of transformers, have theirs here; users register more.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from enum import Enum, Flag
from functools import cache
from types import ModuleType
from typing import Any, TypeVar

from pytest_cgins.core.errors import RecordError, TraceError
from pytest_cgins.core.text import counted

AdapterT = TypeVar("AdapterT", bound=type)

_CACHES = "transformers.cache_utils"
_of_type: dict[type, type] = {}
_names: dict[type, str] = {}


def adapter(cls: type) -> Callable[[AdapterT], AdapterT]:
    """Let traces hold objects of a class: a decorator for a class with two static functions.

        @pytest_cgins.adapter(Cache)
        class CacheAdapter:
            @staticmethod
            def to_plain(cache):
                return [cache.keys, cache.values]

            @staticmethod
            def from_plain(plain):
                return Cache(*plain)

    `to_plain` gives tensors and plain data, in tuples, lists and dicts with str keys, or objects that have
    adapters themselves. `from_plain` makes an equal object from an equal tree. The decorated class lies at
    the top level of a module: that of the op, best of all, or another that is imported with it.

    Raises:
        RecordError: if it has no such functions, or cannot be imported by name.
    """
    if not isinstance(cls, type):
        raise RecordError(
            f"pytest_cgins.adapter takes the class that it is for, not {cls!r}",
            remedy="write @pytest_cgins.adapter(CLASS) above a class with to_plain and from_plain",
        )

    def register(made: AdapterT) -> AdapterT:
        missing = [name for name in ("to_plain", "from_plain") if not callable(getattr(made, name, None))]
        if missing:
            raise RecordError(
                f"{made.__qualname__} is not an adapter for {cls.__qualname__}: it has no {' and no '.join(missing)}",
                remedy="define static functions to_plain(object) and from_plain(plain)",
            )
        if "<locals>" in made.__qualname__:
            raise RecordError(
                f"{made.__module__}.{made.__qualname__} cannot be an adapter: a trace finds it by importing it",
                remedy="move the class to the top level of an importable module",
            )
        _of_type[cls] = _named(made)
        adapter_of.cache_clear()
        return made

    return register


def _named(made: AdapterT) -> AdapterT:
    _names[made] = f"{made.__module__}.{made.__qualname__}"
    return made


@cache
def adapter_of(cls: type) -> Any:
    """The adapter for objects of exactly this class, or None."""
    if cls in _of_type:
        return _of_type[cls]
    if cls.__module__ == _CACHES:
        return TransformersCache
    for base, made in _BASES.items():
        if any(_name(one).lower() == base.lower() for one in cls.__mro__) and _is_found(cls):
            return made
    if issubclass(cls, Enum) and _is_found(cls):
        return EnumMember
    named = issubclass(cls, tuple) and hasattr(cls, "_fields") and cls.__module__ != "torch.return_types"
    return NamedTuple if named and _is_found(cls) else None


def for_results(cls: type) -> Any:
    """The adapter of a class that a user has registered, or of a cache of transformers; of others nothing is asked."""
    found = sys.modules.get(_CACHES)
    is_cache = found is not None and any(var is cls for var in vars(found).values())
    return _of_type.get(cls) or (TransformersCache if is_cache else None)


def to_plain(obj: object) -> tuple[str, object] | None:
    """Name of an object's adapter, and the tree that it makes of the object; None without an adapter.

    Raises:
        RecordError: if the adapter raises.
    """
    kind: Any = type(obj)
    made = adapter_of(kind)
    if made is None:
        return None
    try:
        return _names[made], made.to_plain(obj)
    except Exception as error:
        raise RecordError(
            f"{_names[made]}.to_plain raised {type(error).__name__}: {error}", remedy="fix the adapter"
        ) from error


def from_plain(name: str, plain: object) -> object:
    """The object that an adapter makes of a tree.

    Raises:
        TraceError: if the name is not an adapter's, or the adapter raises.
    """
    # Nothing is imported for a pack: an adapter is there with the op's module.
    found: Any = next((made for made, known in _names.items() if known == name), None)
    if found is None:
        raise TraceError(
            f"{name} is not an adapter, and a trace must not run other code",
            remedy=f"decorate {name.rpartition('.')[2]} with @pytest_cgins.adapter(…) in a module that is imported with "
            "the op's, or record the pack again",
        )
    try:
        made: object = found.from_plain(plain)
    except TraceError:
        raise
    except Exception as error:
        raise TraceError(
            f"{name}.from_plain raised {type(error).__name__}: {error}",
            remedy="fix the adapter, or record the pack again",
        ) from error
    return made


# ---- adapters that are there already ------------------------------------------------------------


@_named
class NamedTuple:
    """Named tuples: the class by its name, and the items."""

    @staticmethod
    def to_plain(obj: Any) -> object:
        """Class and items."""
        return _name(type(obj)), list(obj)

    @staticmethod
    def from_plain(plain: Any) -> object:
        """The tuple with its names."""
        name, items = plain
        cls = _imported(name)
        if not (isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")):
            raise TraceError(f"{name} is not a named tuple that is imported", remedy=_IMPORT)
        if len(items) != len(cls._fields):
            raise ValueError(f"{counted(len(items), 'item')} for {counted(len(cls._fields), 'field')}")
        return tuple.__new__(cls, items)


@_named
class EnumMember:
    """Members of enumerations, which code tells apart by identity: the class and the member by their names."""

    @staticmethod
    def to_plain(obj: Any) -> object:
        """Class and member; the value of flags that have no name together."""
        return _name(type(obj)), obj.name if obj.name in type(obj).__members__ else obj.value

    @staticmethod
    def from_plain(plain: Any) -> object:
        """The member itself."""
        name, member = plain
        cls = _imported(name)
        if not (isinstance(cls, type) and issubclass(cls, Enum)):
            raise TraceError(f"{str(name)[:80]} is not an enumeration that is imported", remedy=_IMPORT)
        return cls(member) if issubclass(cls, Flag) and type(member) is int else cls.__members__[member]


ENUM_MEMBER = _names[EnumMember]


@_named
class ModelOutput:
    """What models of transformers return: the class by its name, and the fields that are set."""

    @staticmethod
    def to_plain(obj: Any) -> object:
        """Class and fields."""
        return _name(type(obj)), dict(obj)

    @staticmethod
    def from_plain(plain: Any) -> object:
        """An output with these fields."""
        name, fields = plain
        return _found(name, ModelOutput)(**fields)


@_named
class TransformersCache:
    """Key-value caches of transformers, and their layers: classes by name, and attributes.

    They are taken as they are rather than through constructors, which want configurations and differ
    between versions.
    """

    @staticmethod
    def to_plain(obj: Any) -> object:
        """Class and attributes; attributes that are classes by name."""
        kept = {name: _by_name(value) for name, value in vars(obj).items()}
        return type(obj).__qualname__, kept, dict(obj) if isinstance(obj, dict) else None

    @staticmethod
    def from_plain(plain: Any) -> object:
        """A cache with these attributes."""
        name, attributes, items = plain
        cls = _cache_class(name)
        made = cls.__new__(cls)
        vars(made).update({name: _from_name(value) for name, value in attributes.items()})
        if items is not None and isinstance(made, dict):
            made.update(items)
        return made


@_named
class TransformersConfig:
    """Configurations of transformers, which attention modules read: classes by name, and attributes."""

    @staticmethod
    def to_plain(obj: Any) -> object:
        """Class and attributes, without where it was loaded from."""
        kept = {name: value for name, value in vars(obj).items() if name not in _LOADED_FROM}
        return _name(type(obj)), _with_pairs(kept)

    @staticmethod
    def from_plain(plain: Any) -> object:
        """A configuration with these attributes."""
        name, attributes = plain
        cls = _found(name, TransformersConfig)
        made = cls.__new__(cls)
        vars(made).update(_without_pairs(attributes))
        return made


# Older versions spell it PretrainedConfig.
_BASES: dict[str, Any] = {
    "transformers.utils.generic.ModelOutput": ModelOutput,
    "transformers.configuration_utils.PreTrainedConfig": TransformersConfig,
}
_LOADED_FROM = frozenset({"_name_or_path", "name_or_path", "_commit_hash", "transformers_version"})
_PAIRS = "__pairs__"


def _with_pairs(value: object) -> object:
    """The tree with dicts whose keys are no strings, as those of labels, written as lists of pairs."""
    if isinstance(value, dict):
        pairs = [(key, _with_pairs(item)) for key, item in value.items()]
        return dict(pairs) if all(type(key) is str for key in value) else {_PAIRS: pairs}
    if type(value) in (list, tuple):
        return type(value)(_with_pairs(item) for item in value)  # type: ignore[call-arg, attr-defined]
    return value


def _without_pairs(value: Any) -> Any:
    if isinstance(value, dict):
        pairs = value[_PAIRS] if set(value) == {_PAIRS} else value.items()
        return {key: _without_pairs(item) for key, item in pairs}
    if type(value) in (list, tuple):
        return type(value)(_without_pairs(item) for item in value)
    return value


def _found(name: object, made: object) -> Any:
    """The class of a name, if it has the base that the adapter is for."""
    cls = _imported(name)
    base = next(base for base, adapted in _BASES.items() if adapted is made)
    if not isinstance(cls, type) or not any(_name(one).lower() == base.lower() for one in cls.__mro__):
        raise TraceError(f"{str(name)[:80]} is no {base} that is imported", remedy=_IMPORT)
    return cls


def _by_name(value: object) -> object:
    if isinstance(value, type) and value.__module__ == _CACHES:
        return {"__class__": value.__qualname__}
    return value


def _from_name(value: object) -> object:
    if isinstance(value, dict) and set(value) == {"__class__"}:
        return _cache_class(value["__class__"])
    return value


def _cache_class(name: object) -> Any:
    found = getattr(importlib.import_module(_CACHES), str(name), None)
    if not isinstance(found, type) or found.__module__ != _CACHES:
        raise TraceError(
            f"the transformers that is installed has no cache class {str(name)[:80]!r}",
            remedy="install the version with which the pack was recorded, or record it again",
        )
    return found


_IMPORT = "import its module beside the op, or record the pack again"


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _is_found(cls: type) -> bool:
    return _imported(_name(cls)) is cls


def _imported(name: object) -> Any:
    """What has a qualified name in the modules that are imported, or None: nothing is imported for a pack."""
    module, _, leaf = str(name).rpartition(".")
    if module.startswith("transformers."):
        try:
            return getattr(importlib.import_module(module), leaf, None)
        except ImportError:
            return None
    found = sys.modules.get(module)
    return getattr(found, leaf, None) if isinstance(found, ModuleType) else None
