"""What Python code of a kernel may import, and what it may not name: the words of `python_tables.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

_DATA: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


def by_name(words: dict[str, str]) -> dict[str, str]:
    """Codes by name, from names by code."""
    return {name: code for code, names in words.items() for name in names.split()}


REMEDY: dict[str, str] = _DATA["remedies"]
"""What to do instead, by code."""
IMPORTS = frozenset(_DATA["imports"].split())
"""Modules that any kernel may import, with what is in them."""
OF_IMPORT = by_name(_DATA["of_import"])
"""Codes of imports whose purpose is known; all others are `import`."""
BUILTINS = by_name(_DATA["builtins"])
"""Builtins that are not named."""
DUNDERS = frozenset(f"__{name}__" for name in _DATA["dunders"].split())
"""Names with two underscores that are anyone's."""
TORCH = by_name(_DATA["torch"])
"""Parts of torch that a kernel does not use, with all that is in them."""
SETTERS_ALLOWED = frozenset({"torch.set_grad_enabled"})
"""`torch.set_…` that are legal."""
MODULES_OF_MODULES = frozenset(_DATA["modules_of_modules"].split())
"""Modules that are reached as attributes of others: `functools.sys`."""
METHODS = by_name(_DATA["methods"])
"""Attributes that are refused on anything."""
