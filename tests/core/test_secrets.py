"""What counts as a secret."""

from __future__ import annotations

import pytest

from pytest_cgins.core.secrets import is_secret


@pytest.mark.parametrize(
    "name",
    [
        "GITHUB_TOKEN", "GH_TOKEN", "HF_TOKEN", "github_token", "ACTIONS_RUNTIME_URL", "AWS_SESSION_TOKEN", "AWS_REGION",
        "OPENAI_API_KEY", "GEMINI_API_KEY", "MY_APIKEY", "DB_PASSWORD", "SECRET", "CLIENT_SECRET_2", "GOOGLE_APPLICATION_CREDENTIALS",
        "SSH_AUTH_SOCK", "AZURE_CLIENT_ID", "GITLAB_PAT", "SENTRY_DSN", "SSH_PRIVATE_KEY", "NPM_CONFIG__AUTH", "DB_PASS",
        "MYSQL_PWD", "CI_JOB_JWT", "CI_JOB_JWT_V2", "JWT", "SIGNING_KEY", "BUILD_TOKEN_FILE", "API_TOKEN_V2", "DEPLOY_TOKEN_1",
    ],
)  # fmt: skip
def test_secrets_are_told_by_their_names(name: str) -> None:
    """Names of tokens, keys, passwords and of whole services are kept from workers."""
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    ["PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "TOKENIZERS_PARALLELISM", "OMP_NUM_THREADS", "CUDA_HOME",
     "TRITON_CACHE_DIR", "PYTHONPATH", "CXX", "VIRTUAL_ENV", "CGINS_CACHE_DIR", "NVCC_CCBIN", "KEYBOARD", "LC_ALL", "PWD",
     "OLDPWD", "PAD_TOKEN", "EOS_TOKEN", "BOS_TOKEN", "MAX_TOKEN", "MAX_TOKENS", "MAX_TOKEN_LENGTH", "MODEL_TOKEN_COUNT",
     "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY", "TORCH_CUDA_ARCH_LIST"],
)  # fmt: skip
def test_what_kernels_need_is_no_secret(name: str) -> None:
    """Paths, compilers, a tokenizer's words and settings of libraries get through."""
    assert not is_secret(name, "/usr/local/bin:/bin")


def test_a_password_in_a_url_is_a_secret_under_any_name() -> None:
    """A proxy or an index with a password in its address is kept, one without it is not."""
    assert is_secret("HTTP_PROXY", "http://user:hush@proxy:3128")
    assert is_secret("PAD_TOKEN", "http://user:hush@proxy:3128")
    assert not is_secret("HTTP_PROXY", "http://proxy:3128")
