"""Secrets stay out of workers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pytest_cgins.execute import environment


@pytest.mark.parametrize(
    "name",
    [
        "GITHUB_TOKEN", "GH_TOKEN", "HF_TOKEN", "github_token", "ACTIONS_RUNTIME_URL", "AWS_SESSION_TOKEN", "AWS_REGION",
        "OPENAI_API_KEY", "GEMINI_API_KEY", "MY_APIKEY", "DB_PASSWORD", "SECRET", "CLIENT_SECRET_2", "GOOGLE_APPLICATION_CREDENTIALS",
        "SSH_AUTH_SOCK", "AZURE_CLIENT_ID", "GITLAB_PAT", "SENTRY_DSN", "SSH_PRIVATE_KEY", "NPM_CONFIG__AUTH",
    ],
)  # fmt: skip
def test_secrets_are_told_by_their_names(name: str) -> None:
    """Names of tokens, keys, passwords and of whole services are kept from workers."""
    assert environment.is_secret(name)


@pytest.mark.parametrize(
    "name",
    ["PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "TOKENIZERS_PARALLELISM", "OMP_NUM_THREADS", "CUDA_HOME",
     "TRITON_CACHE_DIR", "PYTHONPATH", "CXX", "VIRTUAL_ENV", "CGINS_CACHE_DIR", "NVCC_CCBIN", "KEYBOARD", "LC_ALL"],
)  # fmt: skip
def test_what_kernels_need_is_no_secret(name: str) -> None:
    """Paths, compilers and settings of libraries get through."""
    assert not environment.is_secret(name, "/usr/local/bin:/bin")


def test_a_password_in_a_url_is_a_secret_under_any_name() -> None:
    """A proxy or an index with a password in its address is kept, one without it is not."""
    assert environment.is_secret("HTTP_PROXY", "http://user:hush@proxy:3128")
    assert not environment.is_secret("HTTP_PROXY", "http://proxy:3128")


def test_a_worker_s_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ours without secrets, with what is added, and a mark."""
    monkeypatch.setenv("DEPLOY_TOKEN", "hush")
    monkeypatch.setenv("HARMLESS", "1")
    assert environment.has_secrets()
    made = environment.worker_environment("abc", {"ADDED": "2"})
    assert "DEPLOY_TOKEN" not in made
    assert (made["HARMLESS"], made["ADDED"], made["CGINS_WORKER"]) == ("1", "2", "abc")


SHIELDED = """
import ctypes
from pytest_cgins.execute.environment import shield
prctl = ctypes.CDLL(None).prctl
PR_GET_DUMPABLE = 3
print(prctl(PR_GET_DUMPABLE))
shield()
print(prctl(PR_GET_DUMPABLE))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the switch is Linux's")
def test_a_shielded_process_cannot_be_looked_into() -> None:
    """The system's switch, which others' access to memory, descriptors and environment hangs on, is off."""
    done = subprocess.run([sys.executable, "-c", SHIELDED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "0"]
