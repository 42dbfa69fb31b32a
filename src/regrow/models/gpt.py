"""GPT-2's architecture: a decoder of pre-norm transformer blocks over learned positions, its head tied to the embedding.

Radford et al. 2019. Weights are drawn, never downloaded: for benchmarks, and to train from scratch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


class Attention(nn.Module):
    """Causal self-attention of several heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of {heads} heads")
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, width) to the same shape."""
        query, key, value = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.project(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """x + attention, then x + two linear layers with GELU between them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.widen, self.activation, self.narrow = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, width) to the same shape."""
        x = x + self.attention(self.norm1(x))
        return x + self.narrow(self.activation(self.widen(self.norm2(x))))


class GPT(nn.Module):
    """Next-token logits (batch, tokens, vocabulary) of token ids (batch, tokens)."""

    def __init__(self, vocabulary: int, context: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        blocks = [Block(width, heads) for _ in range(depth)]
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.apply(_draw)
        self.head.weight = self.tokens.weight
        with torch.no_grad():  # residual branches add up over the depth
            for block in blocks:
                block.attention.project.weight.div_((2 * depth) ** 0.5)
                block.narrow.weight.div_((2 * depth) ** 0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token at every position."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(x)))


def _draw(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def gpt(width: int, depth: int, heads: int, input_shape: tuple[int, ...] = (1024,), num_classes: int = 50257) -> GPT:
    """A GPT for `input_shape[0]` tokens of a vocabulary of `num_classes`."""
    return GPT(num_classes, input_shape[0], width, depth, heads)


def characters(width: int, depth: int, heads: int, input_shape: tuple[int, ...] = (256,), num_classes: int = 65) -> GPT:
    """The same over characters: a short context and the letters of one text."""
    return gpt(width, depth, heads, input_shape, num_classes)
