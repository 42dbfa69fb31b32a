"""Movement pruning: scores move as published, masks are their top-k."""

import pytest
import torch
from torch import nn

import regrow
from regrow.errors import ConfigurationError
from regrow.methods import build
from regrow.methods.movement import _Gate
from regrow.testing.trial import STEPS, Subject, Trial
from regrow.topology.schedule import cubic

W = torch.tensor([[0.5, -0.2], [0.1, -0.8]], dtype=torch.float64)
S = torch.tensor([[0.3, 0.1], [0.08, 0.05]], dtype=torch.float64)
G = torch.tensor([[1.0, -2.0], [-3.0, -1.0]], dtype=torch.float64)


def test_scores_learn_straight_through():
    score, theta = S.clone().requires_grad_(), W.clone().requires_grad_()
    mask = torch.tensor([[True, True], [False, False]])
    _Gate.apply(theta, score, mask).backward(G)
    assert torch.allclose(score.grad, torch.tensor([[0.5, 0.4], [-0.3, 0.8]], dtype=torch.float64))
    assert torch.equal(theta.grad, G * mask)


def test_a_step_moves_masks_as_computed_by_hand():
    """The specification's vector: w and S as given, half kept; SGD 0.1 leaves (0, 0) and (1, 0)."""
    layer = nn.Linear(2, 2, bias=False).double()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    sparse = regrow.sparsify(layer, optimizer, "movement", density=0.5, steps=100, begin=0.0, end=1e-9, score_lr=None)
    with torch.no_grad():
        sparse.parameters[0].theta.copy_(W)
        sparse.trained.side.layers[0]["score"].copy_(S)
        sparse.network.start_over({"weight": torch.tensor([[True, True], [False, False]])})
        sparse.parameters[0].mask_weight()
    assert torch.equal(layer.weight.detach(), W * torch.tensor([[1.0], [0.0]]))
    (layer.weight * G).sum().backward()
    optimizer.step()
    score = sparse.trained.side.layers[0]["score"]
    expected = torch.tensor([[0.25, 0.06], [0.11, -0.03]], dtype=torch.float64)
    assert torch.allclose(score, expected)
    assert next(iter(sparse.masks.values())).tolist() == [[True, False], [True, False]]
    assert layer.weight[1, 0] == 0.1, "a weight returns with its last value"


def test_density_follows_the_cubic():
    curve = cubic(1.0, 0.15, 0.1, 0.8)
    found = [round(curve(t / 1000), 6) for t in (200, 400, 600, 700)]
    assert found == [0.685277, 0.308601, 0.169825, 0.152478]


def test_scores_grow_where_weights_move_away_from_zero():
    trial = Trial(Subject("movement"))
    before = [p.theta.clone() for p in trial.handle.parameters]
    trial.step()
    for sparse, old, side in zip(trial.handle.parameters, before, trial.handle.trained.side.layers, strict=True):
        outward = (sparse.theta - old) * old
        moved = outward != 0
        assert bool((side["score"][moved].sign() == outward[moved].sign()).all())


def test_soft_movement_has_a_penalty_and_an_outcome():
    trial = Trial(Subject("movement", {"soft": True}))
    list(trial.run())
    assert 100 < trial.handle.penalty < 400 * 0.5, "lambda times the mean of sig(S), which began at 1/2"
    assert trial.handle.method.budget == "outcome"


def test_a_density_given_to_the_soft_version_is_refused_unless_cut():
    net = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(ConfigurationError, match=r"density of method 'movement' is an outcome.*budget='exact'"):
        regrow.sparsify(net, optimizer, "movement", density=0.5, steps=10, soft=True)
    sparse = regrow.sparsify(
        net, optimizer, "movement", density=0.5, steps=10, soft=True, budget="exact", finetune_steps=2
    )
    for _ in range(10):
        optimizer.zero_grad()
        net(torch.ones(3, 8)).square().sum().backward()
        optimizer.step()
    assert sparse.finished
    assert sparse.nonzeros == 16


def test_options_are_checked():
    with pytest.raises(ConfigurationError, match="exact budget by itself"):
        build("movement", {"budget": "exact"})
    with pytest.raises(ConfigurationError, match="finetune_steps come after"):
        build("movement", {"soft": True, "finetune_steps": 3})
    with pytest.raises(ConfigurationError, match="begin must lie before end"):
        build("movement", {"begin": 0.9})


def test_global_selection_shares_the_budget_between_layers():
    trial = Trial(Subject("movement", {"select": "global"}))
    list(trial.run(STEPS))
    counts = [int(mask.sum()) for mask in trial.masks()]
    assert sum(counts) == 67
    assert counts != Trial(Subject("movement")).handle.network.counts_at(0.3)
