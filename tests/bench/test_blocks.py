"""A GPT's blocks measured alone: the right work, and fields that follow from the times. No timing is asserted."""

import pytest
import torch

from regrow import native
from regrow.bench import arms, blocks, masks, train
from regrow.models.gpt import characters

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")


def small():
    torch.manual_seed(0)
    return characters(width=16, depth=2, heads=2, input_shape=(8,), num_classes=11)


def texts():
    text = torch.randint(11, (3, 9), generator=torch.Generator().manual_seed(0))
    return text[:, :-1], text[:, 1:].contiguous()


def test_the_blocks_of_both_arms_compute_the_same():
    x, y = texts()
    chosen = masks.uniform(small(), 0.3)
    dense, sparse = (arms.sparse(small(), x, y, chosen.masks, execution) for execution in ("masked", "sparse"))
    found = blocks.candidates(dense, sparse)
    assert set(found) == {blocks.DENSE, blocks.SPARSE, blocks.ATTENTION}
    for candidate in found.values():
        candidate()
    for (name, one), two in zip(dense.model.blocks.named_parameters(), sparse.model.blocks.parameters(), strict=True):
        present = chosen.masks.get(f"blocks.{name.removesuffix('.weight')}", torch.ones(one.shape, dtype=torch.bool))
        torch.testing.assert_close(one.grad[present], two.grad[present])
    assert dense.model.head.weight.grad is None  # alone


def test_fields_of_a_row_and_none_for_other_models():
    row = train.measure("gpt", small(), texts(), masks.uniform(small(), 0.3), 1, compile=False)
    assert row.blocks_ratio == pytest.approx(row.blocks_dense_ms / row.blocks_ms)
    assert row.attention_share > 0
    assert row.head_share == pytest.approx(1 - row.blocks_dense_ms / row.dense_ms)
    dense = arms.dense(torch.nn.Linear(4, 2), torch.zeros(3, 4), torch.zeros(3, dtype=torch.long))
    assert blocks.candidates(dense, dense) == blocks.shares({}, 1.0) == {}
