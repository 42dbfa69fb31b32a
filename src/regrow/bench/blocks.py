"""What a GPT's step is made of: its blocks alone, attention in them, and the rest, which is head, embeddings and loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from regrow.bench.arms import Arm
from regrow.models.gpt import GPT, Attention

DENSE, SPARSE, ATTENTION = "dense, blocks alone", "sparse, blocks alone", "attention alone"


def candidates(dense: Arm, sparse: Arm) -> dict[str, Callable[[], None]]:
    """Forward and backward of both arms' blocks on random inputs, and of the attention between their layers; nothing for other models."""
    model = dense.model
    if not isinstance(model, GPT):
        return {}
    heads = [module.heads for module in model.modules() if isinstance(module, Attention)]
    inputs = torch.randn(*dense.x.shape, model.head.in_features, generator=torch.Generator().manual_seed(0))
    return {
        DENSE: _passes(model.blocks, inputs),
        SPARSE: _passes(sparse.model.blocks, inputs),
        ATTENTION: _attention(inputs, heads[0], len(heads)),
    }


def shares(milliseconds: dict[str, float], dense: float) -> dict[str, Any]:
    """Fields of a row from the times of its candidates and of the whole pass of the same dense arm."""
    if DENSE not in milliseconds:
        return {}
    return {
        "blocks_dense_ms": milliseconds[DENSE],
        "blocks_ms": milliseconds[SPARSE],
        "blocks_ratio": milliseconds[DENSE] / milliseconds[SPARSE],
        "attention_share": milliseconds[ATTENTION] / dense,
        "head_share": 1 - milliseconds[DENSE] / dense,
    }


def _passes(blocks: nn.Module, inputs: Tensor) -> Callable[[], None]:
    x = inputs.clone().requires_grad_()

    def both() -> None:
        for leaf in (x, *blocks.parameters()):
            leaf.grad = None
        blocks(x).backward(inputs)

    return both


def _attention(inputs: Tensor, heads: int, depth: int) -> Callable[[], None]:
    """Of all blocks, on queries, keys and values that lie as a layer has computed them."""
    samples, tokens, width = inputs.shape
    qkv = inputs.repeat(1, 1, 3).view(samples, tokens, 3, heads, width // heads).requires_grad_()

    def both() -> None:
        for _ in range(depth):
            qkv.grad = None
            query, key, value = qkv.permute(2, 0, 3, 1, 4)
            mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
            mixed.transpose(1, 2).flatten(2).backward(inputs)

    return both
