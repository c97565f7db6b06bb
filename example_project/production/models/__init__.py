"""The models of the folder above: this one is a project of its own, with packs and kernels that only a GPU can run."""

from pathlib import Path

__path__ = [str(Path(__file__).resolve().parents[2] / "models")]
