"""SynFlow: rounds of pruning by |w dR/dw| on absolute weights and an input of ones."""

import pytest
import torch
from torch import nn

from regrow.errors import ConfigurationError
from tests.methods.pretrained import SPARSE, batch, classifier, masks_of, top


def by_hand(rounds, density):
    """Linear flow with |biases|, tanh, and masks applied between rounds."""
    model = classifier(torch.float64)
    for parameter in model.parameters():
        parameter.data.abs_()
    named = dict(model.named_parameters())
    originals = [named[n].detach().clone() for n in SPARSE]
    masks = [torch.ones_like(w, dtype=torch.bool) for w in originals]
    kept = []
    for k in range(1, rounds + 1):
        model.zero_grad()
        model(torch.ones(1, 5, dtype=torch.float64)).sum().backward()
        scores = [
            torch.where(m, (named[n] * named[n].grad).abs(), -1.0).detach() for n, m in zip(SPARSE, masks, strict=True)
        ]
        masks = top(scores, density ** (k / rounds))
        kept.append(sum(int(m.count_nonzero()) for m in masks))
        for n, w, m in zip(SPARSE, originals, masks, strict=True):
            named[n].data.copy_(w * m)
    return masks, kept


@pytest.mark.parametrize("rounds", [1, 3, 20])
def test_rounds_follow_the_exponential_schedule(rounds):
    expected, kept = by_hand(rounds, 0.2)
    _, masks = masks_of("synflow", 0.2, rounds=rounds, calibration=batch()[0])
    assert kept[-1] == 19
    assert all(torch.equal(a, b) for a, b in zip(masks, expected, strict=True))


def test_no_layer_collapses_at_extreme_sparsity():
    _, masks = masks_of("synflow", 0.05, calibration=batch()[0])
    assert all(bool(mask.any()) for mask in masks)


def test_the_model_itself_is_not_touched_but_for_masks():
    model, masks = masks_of("synflow", 0.3, calibration=batch()[0])
    plain = classifier()
    assert torch.equal(model[0].weight, plain[0].weight * masks[0])
    assert torch.equal(model[0].bias, plain[0].bias)
    assert model.training


def test_an_example_input_is_asked_for():
    with pytest.raises(ConfigurationError, match="one example batch"):
        masks_of("synflow", calibration=nn.Identity())
