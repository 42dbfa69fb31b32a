"""The guard names what went wrong."""

import pytest
import torch
from torch import nn

from regrow.errors import CollapseError, NonFiniteError
from regrow.training.watch import collapsed, refuse_collapse, refuse_non_finite, refuse_non_finite_scores


def network():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def test_the_first_layer_whose_output_is_not_finite():
    net = network()
    with torch.no_grad():
        net[2].weight[0, 0] = float("nan")
    with pytest.raises(
        NonFiniteError, match=r"loss is nan at step 12; the first layer with a non-finite output is 2\."
    ):
        refuse_non_finite(net, torch.ones(2, 3), 12, float("nan"))
    assert not net[2]._forward_hooks


def test_a_bad_batch_and_a_bad_loss():
    with pytest.raises(NonFiniteError, match="the batch itself is not finite"):
        refuse_non_finite(network(), torch.full((2, 3), float("inf")), 1, float("inf"))
    with pytest.raises(NonFiniteError, match="all layer outputs are finite, the loss itself is not"):
        refuse_non_finite(network(), torch.ones(2, 3), 1, float("inf"))


def test_another_process_is_to_blame():
    with pytest.raises(NonFiniteError, match="another process"):
        refuse_non_finite(network(), torch.ones(2, 3), 1, 0.5)


def test_an_evaluation_that_is_not_finite_is_refused():
    refuse_non_finite_scores(2.3, 5)
    with pytest.raises(NonFiniteError, match="the evaluation at step 5 is nan: the weights are broken"):
        refuse_non_finite_scores(float("nan"), 5)


def test_collapse_is_a_row_of_validations_at_chance():
    assert collapsed([0.9, 0.11, 0.1], 2, majority=0.11)
    assert not collapsed([0.1, 0.9, 0.1], 2, majority=0.11), "it came back in between"
    assert not collapsed([0.1], 2, majority=0.11), "too early to say"
    assert not collapsed([0.2, 0.2], 2, majority=0.11), "a fifth is twice chance"
    assert not collapsed([0.6, 0.6], 2, majority=0.5), "two classes, and better than one of them"
    assert collapsed([0.9, 0.9], 2, majority=0.9), "few others, and none of them found"
    assert collapsed([float("nan")] * 2, 2, majority=0.5)
    with pytest.raises(
        CollapseError, match=r"at step 20 its validation accuracy is 10\.0%, and 2 validations .* patience = 0"
    ):
        refuse_collapse(20, 0.1, 2)
