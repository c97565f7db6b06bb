"""The models with their inputs, weights random: `cgins bench-model workloads:llama_prefill_2048`.

`scale` divides widths, lengths and batches, so that each can be tried on a CPU.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import (
    BertConfig,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    GPT2Config,
    GPT2LMHeadModel,
    ViTConfig,
    ViTModel,
)

from models.decoder import Cache, Decoder, DecoderConfig
from models.mixture import Mixture
from models.resnet import ResNet50
from models.unet import UNetLevel
from models.weights import randomize

CACHED = 4096


def _placed(make: Callable[[], nn.Module], device: str, dtype: torch.dtype) -> nn.Module:
    """Made where it runs: a CPU takes minutes to draw a billion weights."""
    with torch.no_grad(), torch.device(device):
        return randomize(make()).to(dtype)


def _decoder(device: str, scale: int) -> Decoder:
    """Two layers of Llama 3 8B, with its vocabulary."""
    torch.manual_seed(0)
    config = DecoderConfig(
        vocabulary=128_256 // scale, hidden=4096 // scale, intermediate=14_336 // scale, layers=2, heads=32 // min(scale, 4),
        kv_heads=8 // min(scale, 4), eps=1e-5,
    )  # fmt: skip
    model = _placed(lambda: Decoder(config), device, torch.bfloat16)
    assert isinstance(model, Decoder)
    return model


def _tokens(model: Decoder, batch: int, length: int, device: str) -> torch.Tensor:
    return torch.randint(model.config.vocabulary, (batch, length), device=device)


class Prefill(nn.Module):
    """Reads a prompt, and gives the logits of its last token."""

    def __init__(self, model: Decoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model.head(self.model.features(tokens)[:, -1:])


class Decode(nn.Module):
    """One further token for each sequence, whose keys and values so far are cached: the same step at each call."""

    def __init__(self, model: Decoder, batch: int, cached: int) -> None:
        super().__init__()
        self.model, self.cached = model, cached
        self.caches: list[Cache] = model.caches(batch, cached + 1)
        for cache in self.caches:
            cache.keys.normal_()
            cache.values.normal_()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        for cache in self.caches:
            cache.length = self.cached
            cache.keys, cache.values = cache.keys.to(self.dtype), cache.values.to(self.dtype)
        return self.model(tokens, caches=self.caches)

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights: a cache is no buffer, and stays behind where these are cast."""
        return self.model.embedding.weight.dtype


def _prefill(length: int) -> Callable[..., tuple[nn.Module, Any]]:
    def make(device: str, scale: int = 1) -> tuple[nn.Module, Any]:
        model = _decoder(device, scale)
        return Prefill(model), _tokens(model, 1, length // scale, device)

    return make


def _decode(batch: int) -> Callable[..., tuple[nn.Module, Any]]:
    def make(device: str, scale: int = 1) -> tuple[nn.Module, Any]:
        model = _decoder(device, scale)
        rows = max(1, batch // scale)
        with torch.no_grad():
            return Decode(model, rows, CACHED // scale), _tokens(model, rows, 1, device)

    return make


llama_prefill_2048, llama_prefill_8192 = _prefill(2048), _prefill(8192)
llama_decode_1, llama_decode_16, llama_decode_128 = _decode(1), _decode(16), _decode(128)


def mixtral(device: str, scale: int = 1) -> tuple[nn.Module, Any]:
    """The mixture of experts of a layer of Mixtral 8x7B, on 2,048 tokens."""
    torch.manual_seed(0)
    model = _placed(lambda: Mixture(4096 // scale, 14_336 // scale), device, torch.bfloat16)
    return model, torch.randn(2048 // scale, 4096 // scale, device=device, dtype=torch.bfloat16)


def vit_large(device: str, scale: int = 1) -> tuple[nn.Module, Any]:
    """ViT-L/16 on 32 images."""
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=1024 // scale, num_hidden_layers=24 // scale, num_attention_heads=16 // scale, intermediate_size=4096 // scale
    )  # fmt: skip
    model = _placed(lambda: ViTModel(config), device, torch.float16)
    return model, torch.randn(32 // scale, 3, 224, 224, device=device, dtype=torch.float16)


def distilbert(device: str, scale: int = 1) -> tuple[nn.Module, Any]:
    """DistilBERT on 64 texts of 128 tokens."""
    torch.manual_seed(0)
    config = DistilBertConfig(dim=768 // scale, hidden_dim=3072 // scale, n_heads=12 // min(scale, 4))
    model = _placed(lambda: DistilBertModel(config), device, torch.float16)
    return model, torch.randint(30_522, (64 // scale, 128 // scale), device=device)


def bert_large(device: str, scale: int = 1) -> tuple[nn.Module, Any]:
    """BERT-large on 16 texts of 384 tokens."""
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=1024 // scale, num_hidden_layers=24 // scale, num_attention_heads=16 // scale, intermediate_size=4096 // scale
    )  # fmt: skip
    model = _placed(lambda: BertModel(config), device, torch.float16)
    return model, torch.randint(30_522, (16 // scale, 384 // scale), device=device)


def _resnet(layout: torch.memory_format) -> Callable[..., tuple[nn.Module, Any]]:
    def make(device: str, scale: int = 1) -> tuple[nn.Module, Any]:
        torch.manual_seed(0)
        model = _placed(ResNet50, device, torch.float16).to(memory_format=layout)
        images = torch.randn(64 // scale, 3, 224 // scale, 224 // scale, device=device, dtype=torch.float16)
        return model, images.to(memory_format=layout)

    return make


resnet50, resnet50_channels_last = _resnet(torch.contiguous_format), _resnet(torch.channels_last)


def unet(device: str, scale: int = 1) -> tuple[nn.Module, Any]:
    """The widest level of Stable Diffusion 1.5's UNet on 8 latents."""
    torch.manual_seed(0)
    channels = 320 // min(scale, 10)
    model = _placed(lambda: UNetLevel(channels), device, torch.float16)
    features = torch.randn(
        8 // min(scale, 8), channels, 64 // scale, 64 // scale, device=device, dtype=torch.float16
    )
    return model, (features, torch.randn(len(features), 4 * channels, device=device, dtype=torch.float16))


def gpt2_training(device: str, scale: int = 1) -> Callable[[], torch.Tensor]:
    """A step of GPT-2's training on 8 texts of 1,024 tokens: forward, backward, fused AdamW."""
    torch.manual_seed(0)
    config = GPT2Config(
        n_embd=768 // scale, n_layer=12 // scale, n_head=12 // min(scale, 4), resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )  # fmt: skip
    with torch.device(device):
        model = GPT2LMHeadModel(config).to(torch.bfloat16 if device != "cpu" else torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(config.vocab_size, (8 // min(scale, 8), 1024 // scale), device=device)

    def step() -> torch.Tensor:
        with torch.enable_grad():
            loss: torch.Tensor = model(input_ids=tokens, labels=tokens).loss
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


ALL = (
    "llama_prefill_2048", "llama_prefill_8192", "llama_decode_1", "llama_decode_16", "llama_decode_128", "mixtral", "vit_large",
    "distilbert", "bert_large", "resnet50", "resnet50_channels_last", "unet", "gpt2_training",
)  # fmt: skip
"""Functions of this module that make one."""
