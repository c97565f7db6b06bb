"""A real server with a model of random weights, whose answers are garbage: `python tiny_server.py FOLDER`.

Makes the model in the layout of a cache of models, so that the server lists it, and serves it by `transformers serve`
on a free port, which the server prints. `serving` runs it for tests.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MODEL = "tests/tiny"
_REVISION = "0" * 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A server that runs."""

    base_url: str
    model: str = MODEL


@contextmanager
def serving(folder: Path) -> Iterator[Serving]:
    """A server with its model and its output in a folder; takes some ten seconds to start."""
    log = folder / "server.log"
    environment = os.environ | {
        "HF_HOME": str(folder),
        "HF_HUB_CACHE": str(folder / "hub"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, __file__, str(folder)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                output.write(line)
                if found := re.search(rb"running on (http://\S+)", line):
                    break
            else:
                raise AssertionError(f"the server did not start: {log.read_text()[-2000:]}")
            yield Serving(base_url=f"{found[1].decode()}/v1")
        finally:
            process.terminate()
            try:
                process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def make_model(folder: Path) -> None:
    """A language model over single bytes, of random weights, in the layout of a cache of models."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    repository = folder / "hub" / f"models--{MODEL.replace('/', '--')}"
    snapshot = repository / "snapshots" / _REVISION
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text(_REVISION)
    vocabulary = {char: number for number, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    end = vocabulary["<end>"] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>")
    fast.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
    fast.save_pretrained(snapshot)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=2**16,
        eos_token_id=end,
        pad_token_id=end,
        bos_token_id=end,
    )
    LlamaForCausalLM(config).save_pretrained(snapshot)


if __name__ == "__main__":
    make_model(Path(sys.argv[1]))
    sys.argv = ["transformers", "serve", "--host", "127.0.0.1", "--port", "0", "--device", "cpu"]
    from transformers.cli.transformers import main

    main()
