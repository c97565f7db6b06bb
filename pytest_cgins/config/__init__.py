"""`cgins.yaml` as one frozen `Config`: what it may hold, and how it is read."""

from pytest_cgins.config.load import load
from pytest_cgins.config.model import (
    Config,
    Implementation,
    KernelEntry,
    ProbeException,
    Repeatability,
    ResourceLimits,
    Tolerance,
)
from pytest_cgins.config.semantics import Declared, SemanticsError, declared

__all__ = [
    "Config",
    "Declared",
    "Implementation",
    "KernelEntry",
    "ProbeException",
    "Repeatability",
    "ResourceLimits",
    "SemanticsError",
    "Tolerance",
    "declared",
    "load",
]
