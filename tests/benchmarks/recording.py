"""What recording costs and whether it is right, for eleven models with random weights, in every tier.

Run as `python tests/benchmarks/recording.py [--device cuda] [--json FILE] [--rounds N] [--models NAME…]`. All is
fp32 and default ops (marked functions included), one thread on the CPU:

- ResNet-50, images (2, 3, 112, 112); its ReLUs and shortcuts are in place;
- DistilBERT, six layers, tokens (2, 128), attention written out;
- decoder: the example project's two layers with marked functions, tokens (2, 128);
- Llama, four layers of width 256: prefill of tokens (2, 128); decode: a prompt of 16 tokens, then 16 more,
  one at a time, with a key-value cache; fused: the prefill with its norms, MLPs and rotary embedding as
  one op each, and nothing else;
- ViT, four layers of ViT-Base's width, one image of 224²;
- GPT-2, four layers of its width and 4096 words: prefill and decode as above; training: the forward pass of tokens
  (2, 64) in training mode, whose attention drops out and so draws random numbers; step: the same without
  dropout, with a loss and its backward, which is recorded too.

Per model and tier, medians over `rounds` recordings, plain runs interleaved:

- first: the model's run in which every signature is new, over the plain run;
- again: its next run under the same recording, in which every signature is known, over the plain run;
- total: seconds of the whole recording of these two runs, gold, self-check and writing included.

Replay is the recorder's self-check: a recording that is not reproduced raises. Besides, in tier `full` every gold
tensor must be, bit for bit, among what a plain run without the recorder computes, as a dispatch mode sees it
there; those that a later in-place op overwrites in that run are counted apart (`overwritten`): a recorder that
kept references would have them wrong. Gold of ops that draw random numbers is made from a seed, after the run,
and is left out of this; exit status 1 if there is other gold.

Signatures are counted with `lengths="few"`, the default, and in brackets with "all", where they differ: a
generation makes a signature a key-value length.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import xxhash
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pytest_cgins.core import documents
from pytest_cgins.core.trace import TracePack
from pytest_cgins.packs.context import settled_cudnn
from pytest_cgins.packs.gold import load_gold, to_bytes
from pytest_cgins.packs.store import open_pack
from pytest_cgins.recording.record import record
from pytest_cgins.timing.environment import describe

PROJECT = Path(__file__).resolve().parents[2] / "example_project"
TIERS = ("shapes", "recipe", "full")
Model = Callable[[], object]
Value = tuple[tuple[int, ...], str, int]


@dataclass(frozen=True)
class Subject:
    """A model, and how it is recorded."""

    run: Model
    options: dict[str, Any] = field(default_factory=dict)
    """For `record`."""
    grad: bool = False
    """Whether autograd is on."""


def models(device: str) -> dict[str, Callable[[], Subject]]:
    """What makes each model: its weights are there only while it is measured."""
    return {
        "ResNet-50": lambda: resnet50(device),
        "DistilBERT": lambda: distilbert(device),
        "decoder": lambda: decoder(device),
        "Llama prefill": lambda: llama(device, generated=0),
        "Llama decode": lambda: llama(device, generated=16),
        "Llama fused": lambda: llama(device, generated=0, options={"ops": LLAMA_UNITS}),
        "ViT": lambda: vit(device),
        "GPT-2 prefill": lambda: gpt2(device, generated=0),
        "GPT-2 decode": lambda: gpt2(device, generated=16),
        "GPT-2 training": lambda: gpt2(device, generated=0, training=True),
        "GPT-2 step": lambda: gpt2_step(device),
    }


LLAMA_UNITS = [
    f"transformers.models.llama.modeling_llama.{name}"
    for name in ("LlamaRMSNorm", "LlamaMLP", "apply_rotary_pos_emb")
]


def resnet50(device: str) -> Subject:
    """Images to class probabilities."""
    from models.resnet import ResNet50

    model, images = ResNet50().eval().to(device), torch.randn(2, 3, 112, 112, device=device)
    return Subject(lambda: model(images))


def distilbert(device: str) -> Subject:
    """Tokens to hidden states."""
    from transformers import DistilBertConfig, DistilBertModel

    model = DistilBertModel(DistilBertConfig(attn_implementation="eager")).eval().to(device)
    tokens = torch.randint(1000, (2, 128), device=device)
    return Subject(lambda: model(input_ids=tokens))


def decoder(device: str) -> Subject:
    """The example project's own."""
    from models.decoder import Decoder

    model, tokens = Decoder().eval().to(device), torch.randint(1000, (2, 128), device=device)
    return Subject(lambda: model(tokens))


def llama(device: str, generated: int, options: dict[str, Any] | None = None) -> Subject:
    """Prefill, or generation with a key-value cache."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=1000,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
    )
    model = LlamaForCausalLM(config).eval().to(device)
    tokens = torch.randint(1000, (2, 16 if generated else 128), device=device)
    run = generation(model, tokens, generated) if generated else lambda: model(input_ids=tokens)
    return Subject(run, options or {})


def vit(device: str) -> Subject:
    """An image to hidden states."""
    from transformers import ViTConfig, ViTModel

    model = ViTModel(ViTConfig(num_hidden_layers=4)).eval().to(device)
    image = torch.randn(1, 3, 224, 224, device=device)
    return Subject(lambda: model(pixel_values=image))


def gpt2(device: str, generated: int, *, training: bool = False) -> Subject:
    """Prefill, generation with a key-value cache, or a forward pass with dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=4, vocab_size=4096, bos_token_id=0, eos_token_id=0)).to(device)
    model.train(training)
    tokens = torch.randint(4096, (2, 64 if training else 16 if generated else 128), device=device)
    if not training:
        run = generation(model, tokens, generated) if generated else lambda: model(input_ids=tokens)
        return Subject(run)

    def train() -> object:
        torch.manual_seed(1)  # the same masks in every run
        return model(input_ids=tokens)

    return Subject(train)


def gpt2_step(device: str) -> Subject:
    """Loss and gradients."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_layer=4, vocab_size=4096, bos_token_id=0, eos_token_id=0, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
    )
    model = GPT2LMHeadModel(config).to(device)
    tokens = torch.randint(4096, (2, 64), device=device)

    def run() -> object:
        model.zero_grad()
        return model(input_ids=tokens, labels=tokens).loss.backward()

    return Subject(run, {"backward": True}, grad=True)


def generation(model: Any, prompt: torch.Tensor, steps: int) -> Model:
    """The prompt, then the likeliest tokens, one at a time."""

    def run() -> object:
        made = model(input_ids=prompt, use_cache=True)
        for _ in range(steps):
            token = made.logits[:, -1:].argmax(-1)
            made = model(input_ids=token, past_key_values=made.past_key_values, use_cache=True)
        return made

    return run


# ---- what a plain run computes ------------------------------------------------------------------


class Observer(TorchDispatchMode):
    """Every value that the dispatcher returns, taken at once, and the tensor that held it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Value, torch.Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.numel() and leaf.layout == torch.strided:
                self.seen.append((value_of(leaf), leaf))
        return result

    def overwritten(self) -> set[Value]:
        """Values that were no longer in their tensors at the end."""
        return {value for value, tensor in self.seen if value_of(tensor) != value}


def value_of(tensor: torch.Tensor) -> Value:
    """Shape, dtype and a hash of the elements."""
    return tuple(tensor.shape), str(tensor.dtype), xxhash.xxh3_64_intdigest(to_bytes(tensor))


def golds(pack: TracePack, folder: Path) -> Iterator[tuple[str, Value]]:
    """(op, value) of every gold tensor that was taken while the model ran."""
    reader = open_pack(folder)
    for trace in pack.traces:
        if trace.context.rng_seed is None:
            for gold in load_gold(trace, reader):
                values = gold.values.reshape(gold.recorded.meta.shape)
                if values.numel():
                    yield trace.call.op, value_of(values)


def compared_with_plain_run(model: Model, pack: TracePack, folder: Path) -> dict[str, Any]:
    """How many gold tensors a plain run has computed too, and how many of these it has overwritten since."""
    with settled_cudnn(), Observer() as observer:
        model()
    values, overwritten = {value for value, _ in observer.seen}, observer.overwritten()
    made = list(golds(pack, folder))
    foreign = Counter(op for op, value in made if value not in values)
    lost = Counter(op for op, value in made if value in overwritten)
    return {
        "gold_tensors": len(made),
        "foreign_by_op": dict(foreign),
        "overwritten": sum(lost.values()),
        "overwritten_by_op": dict(lost),
    }


# ---- measuring ----------------------------------------------------------------------------------


def timed(action: Model, device: str) -> float:
    """Seconds of one run."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    action()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def measure(subject: Subject, tier: Any, rounds: int, device: str) -> dict[str, Any]:
    """Figures of one model in one tier; plain runs are interleaved with recordings."""
    plain, first, again, total = [], [], [], []
    model = subject.run
    with tempfile.TemporaryDirectory() as scratch, torch.set_grad_enabled(subject.grad):
        folder = Path(scratch) / "pack"
        model()
        for _ in range(rounds):
            plain += [timed(model, device), timed(model, device)]
            start = time.perf_counter()
            with record(folder, tier=tier, **subject.options) as recording:
                first.append(timed(model, device))
                again.append(timed(model, device))
            total.append(time.perf_counter() - start)
        pack = recording.pack
        assert pack is not None
        files = [file for file in folder.rglob("*") if file.is_file()]
        nbytes = sum(file.stat().st_size for file in files)
        proof = compared_with_plain_run(model, pack, folder) if tier == "full" else {}
        with record(folder, tier="shapes", lengths="all", **subject.options) as everything:
            model()
        assert everything.pack is not None
    base = statistics.median(plain)
    return {
        "calls": sum(trace.count for trace in pack.traces) // 2,
        "signatures": len(pack.traces),
        "signatures_all_lengths": len(everything.pack.traces),
        "by_seed": sum(trace.context.rng_seed is not None for trace in pack.traces),
        "plain_s": base,
        "first_over_plain": statistics.median(first) / base,
        "again_over_plain": statistics.median(again) / base,
        "total_s": statistics.median(total),
        "pack_mib": nbytes / 2**20,
        "files": len(files),
        "replay": dict(Counter(trace.replay for trace in pack.traces)),
        **proof,
    }


COLUMNS = (
    "model | tier | calls | signatures | plain ms | first | again | total s | MiB | files | replay | gold"
)


def line(name: str, tier: str, row: dict[str, Any]) -> str:
    """One line of the table."""
    replay = ", ".join(f"{count} {outcome}" for outcome, count in sorted(row["replay"].items()))
    if row["by_seed"] and tier != "shapes":
        replay += f" ({row['by_seed']} by seed)"
    every = row["signatures_all_lengths"]
    signatures = str(row["signatures"]) + (f" ({every})" if every != row["signatures"] else "")
    proof = ""
    if "gold_tensors" in row:
        right = row["gold_tensors"] - sum(row["foreign_by_op"].values())
        proof = f"{right} of {row['gold_tensors']} as in a plain run, {row['overwritten']} overwritten there"
    cells = [
        name, tier, row["calls"], signatures, f"{1e3 * row['plain_s']:.0f}",
        f"{row['first_over_plain']:.2f}×", f"{row['again_over_plain']:.2f}×", f"{row['total_s']:.1f}",
        f"{row['pack_mib']:.2f}", row["files"], replay, proof,
    ]  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def main() -> int:
    """Print the table, and write the figures with the environment; 1 if gold is not a plain run's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", nargs="+", metavar="NAME", help="only these")
    parser.add_argument(
        "--threads", type=int, default=1, help="torch's threads; 1 is steady on a shared host"
    )
    args = parser.parse_args()
    sys.path.insert(0, str(PROJECT))
    torch.set_num_threads(args.threads)
    makers = models(args.device)
    results: dict[str, dict[str, Any]] = {}
    print(f"| {COLUMNS} |")
    print("|---" * (COLUMNS.count("|") + 1) + "|")
    for name in args.models or makers:
        torch.manual_seed(0)
        subject = makers[name]()
        results[name] = {}
        for tier in TIERS:
            results[name][tier] = measure(subject, tier, args.rounds, args.device)
            print(line(name, tier, results[name][tier]), flush=True)
    if args.json:
        environment = documents.dump_python(describe("cuda:0" if args.device == "cuda" else "cpu"))
        args.json.write_text(json.dumps({"environment": environment, "results": results}, indent=2) + "\n")

    foreign = {name: row["full"]["foreign_by_op"] for name, row in results.items()}
    for name, ops in foreign.items():
        if ops:
            print(f"{name}: gold that a plain run does not compute: {ops}", file=sys.stderr)
    return 1 if any(foreign.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
