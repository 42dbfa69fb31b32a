"""GPTs: sizes, causality, and what a benchmark makes sparse of them."""

import pytest
import torch

from regrow import models, native
from regrow.bench import arms, masks
from regrow.models.gpt import GPT


def test_sizes_are_the_published_ones():
    with torch.device("meta"):
        small = models.create("gpt2-small")
        characters = models.create("gpt-10m")
    assert sum(p.numel() for p in small.parameters()) == 124_439_808  # Hugging Face's gpt2, head tied
    assert sum(p.numel() for p in characters.blocks.parameters()) == pytest.approx(10.6e6, rel=0.01)
    assert characters.tokens.weight.shape == (65, 384)
    assert characters.positions.weight.shape == (256, 384)


def test_a_token_sees_none_behind_it():
    model = GPT(vocabulary=11, context=6, width=8, depth=2, heads=2).eval()
    text = torch.randint(11, (3, 6), generator=torch.Generator().manual_seed(0))
    other = text.clone()
    other[:, 4] = (other[:, 4] + 1) % 11
    with torch.no_grad():
        a, b = model(text), model(other)
    assert torch.equal(a[:, :4], b[:, :4])
    assert not torch.equal(a[:, 4], b[:, 4])


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(ValueError, match="width 8 is not a multiple of 3 heads"):
        GPT(vocabulary=11, context=6, width=8, depth=1, heads=3)


@pytest.mark.skipif(not native.available(), reason="native kernels not built")
def test_every_linear_layer_of_the_blocks_is_measured_sparse_and_trains():
    model = GPT(vocabulary=11, context=6, width=16, depth=1, heads=2)
    chosen = masks.uniform(model, 0.25)
    assert list(chosen.masks) == [
        f"blocks.0.{name}" for name in ("attention.qkv", "attention.project", "widen", "narrow")
    ]
    text = torch.randint(11, (3, 7), generator=torch.Generator().manual_seed(0))
    arm = arms.sparse(model, text[:, :-1], text[:, 1:], chosen.masks, "sparse")
    assert type(arm.optimizer) is torch.optim.AdamW
    before = model.blocks[0].widen.weight.detach().clone()
    arm.step()
    changed = model.blocks[0].widen.weight.detach() != before
    assert changed.any()
    assert not (changed & ~chosen.masks["blocks.0.widen"]).any()


def test_batches_of_tokens_predict_the_next():
    x, y = arms.batch_of("gpt-10m", 2)
    assert x.shape == y.shape == (2, 256)
    assert torch.equal(x[:, 1:], y[:, :-1])
    assert int(x.max()) < 65
