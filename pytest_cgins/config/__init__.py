"""`cgins.yaml` as one frozen `Config`: what it may hold, and how it is read. It imports `core`."""

from pytest_cgins.config.implementation import Implementation
from pytest_cgins.config.kernel import (
    DeclaredWork,
    KernelEntry,
    ProbeException,
    Ranks,
    Repeatability,
    Tolerance,
)
from pytest_cgins.config.load import Config, load, load_without_traces, select
from pytest_cgins.config.model import ModelEntry
from pytest_cgins.config.pull_request import PullRequestSettings
from pytest_cgins.config.semantics import Declared, IndexOutput, declared
from pytest_cgins.config.timing_gate import PROFILES, ResourceLimits, TimingGate

__all__ = [
    "PROFILES",
    "Config",
    "Declared",
    "DeclaredWork",
    "Implementation",
    "IndexOutput",
    "KernelEntry",
    "ModelEntry",
    "ProbeException",
    "PullRequestSettings",
    "Ranks",
    "Repeatability",
    "ResourceLimits",
    "TimingGate",
    "Tolerance",
    "declared",
    "load",
    "load_without_traces",
    "select",
]
