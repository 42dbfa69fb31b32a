"""SNIP: the largest |w * g| of the whole network."""

import pytest
import torch
from torch import nn

import regrow
from regrow.errors import ConfigurationError, NonFiniteError
from tests.methods.pretrained import SPARSE, batch, classifier, masks_of, top


def sensitivities():
    model, (inputs, targets) = classifier(), batch()
    nn.functional.cross_entropy(model(inputs), targets).backward()
    named = dict(model.named_parameters())
    return [(named[n] * named[n].grad).abs().detach() for n in SPARSE]


@pytest.mark.parametrize("density", [0.04, 0.3, 1.0])
def test_the_largest_products_of_the_whole_network_stay(density):
    _, masks = masks_of("snip", density)
    expected = top(sensitivities(), density)
    assert all(torch.equal(a, b) for a, b in zip(masks, expected, strict=True))


def test_weights_may_be_drawn_anew_without_touching_the_global_generator():
    kept, masks = masks_of("snip")
    state = torch.get_rng_state()
    fresh, same = masks_of("snip", reinitialise=True)
    again, _ = masks_of("snip", reinitialise=True)
    assert all(torch.equal(a, b) for a, b in zip(masks, same, strict=True))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(fresh[0].weight, again[0].weight)
    assert not torch.equal(fresh[0].weight, kept[0].weight)


def test_fresh_weights_follow_the_models_own_rule():
    plain, _ = masks_of("dense", 1.0, calibration=None)
    fresh, _ = masks_of("snip", 1.0, reinitialise=True)
    weights = [(dict(plain.named_parameters())[name], dict(fresh.named_parameters())[name]) for name in SPARSE]
    assert all(torch.equal(a.flatten().sort().values, b.flatten().sort().values) for a, b in weights)
    assert not any(torch.equal(a, b) for a, b in weights)


@pytest.mark.parametrize("inference", [True, False])
def test_norms_and_dropout_act_as_in_inference_while_weights_are_scored(inference):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Dropout(0.5), nn.Linear(7, 3))
    model[2].eval()
    inputs, targets = batch()
    seen = []

    def loss():
        seen.append([module.training for module in model])
        return nn.functional.cross_entropy(model(inputs), targets)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    regrow.sparsify(model, optimizer, "snip", density=0.3, calibration=loss, inference=inference)
    assert seen == [[False] * 4 if inference else [True, True, False, True]]
    assert [module.training for module in model] == [True, True, False, True]
    assert int(model[1].num_batches_tracked) == (0 if inference else 1)


def test_calibration_is_asked_for_and_checked():
    with pytest.raises(ConfigurationError, match="calibration=lambda"):
        masks_of("snip", calibration=None)
    with pytest.raises(NonFiniteError, match="non-finite score in layer 0"):
        masks_of("snip", scale=float("nan"))
