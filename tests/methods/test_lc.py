"""Learning-compression: projections, multipliers, and where the whole leads."""

import pytest
import torch
from torch import nn

import regrow
from regrow.methods.projections import advance, keep_largest, l0_penalty, l1_ball, l1_penalty
from regrow.testing.trial import STEPS, Subject, Trial
from tests.support.views import view


def near(*values):
    return torch.tensor(values, dtype=torch.float64)


V = near(0.7, 0.1, 0.2, -0.05, 0.3)


def test_projections_of_the_vector():
    assert torch.allclose(keep_largest([V], 3)[0], near(0.7, 0, 0.2, 0, 0.3))
    assert torch.allclose(l0_penalty(V, 0.004, 0.1), near(0.7, 0, 0, 0, 0.3))
    assert torch.allclose(l1_penalty(V, 0.015, 0.1), near(0.55, 0, 0.05, 0, 0.15))
    assert torch.allclose(l1_ball(V, 0.9), near(0.6, 0, 0.1, 0, 0.2))
    assert torch.equal(l1_ball(V, 2.0), V)


def test_a_compression_step_of_the_vector():
    w, multiplier = near(0.9, -0.5, 0.3, -0.05, 0.6), near(0.02, -0.06, 0.01, 0, 0.03)
    layer = view(w, torch.ones(5, dtype=torch.bool))
    layer.memory["multiplier"] = multiplier
    advance([layer], 0.1, True, lambda values: keep_largest(values, 3))
    assert torch.allclose(layer.memory["kept"], near(0.7, 0, 0.2, 0, 0.3))
    assert torch.allclose(layer.memory["multiplier"], near(0, -0.01, 0, 0.005, 0))


A, W0 = near(1, 0.8, 0, 0.8, 1, 0.1, 0, 0.1, 1).view(3, 3), near(1, 0.9, 0.3)


def toy(multipliers):
    """60 C steps with exact L steps between them."""
    w, layer = W0.clone(), view(W0.clone(), torch.ones(3, dtype=torch.bool))
    layer.memory["kept"], layer.memory["multiplier"] = keep_largest([w], 1)[0], torch.zeros(3, dtype=torch.float64)
    for n in range(60):
        mu = 0.05 * 1.2**n
        pull = mu * layer.memory["kept"] + layer.memory["multiplier"]
        w = torch.linalg.solve(A + mu * torch.eye(3, dtype=torch.float64), A @ W0 + pull)
        layer.weight = w
        advance([layer], mu, multipliers, lambda values: keep_largest(values, 1))
    return layer.memory["kept"]


def test_the_toy_problem_ends_where_computed():
    found = toy(True)
    assert torch.allclose(found, near(1.719986, 0, 0), atol=1e-5)
    gap = found - W0
    assert float(0.5 * gap @ A @ gap) == pytest.approx(0.2178, abs=1e-4)
    assert torch.allclose(toy(False), near(1.667605, 0, 0), atol=1e-5)
    direct = keep_largest([W0], 1)[0] - W0
    assert float(0.5 * direct @ A @ direct) == pytest.approx(0.477, abs=1e-3)


def test_training_has_dense_weights_and_evaluation_the_compressed_copy():
    trial = Trial(Subject("lc", {"dense_share": 0.1}))
    list(trial.run(4))
    inputs = trial.batch(0)[0]
    trial.model(inputs)
    assert int((trial.model[3].weight != 0).sum()) == trial.model[3].weight.numel()
    trial.model.eval()
    trial.model(inputs)
    memory = trial.handle.network.layer_memory[1]
    assert torch.equal(trial.model[3].weight.detach(), memory["kept"])
    assert trial.handle.nonzeros == trial.handle.budget == 67


def test_the_last_compression_comes_after_the_last_step():
    trial = Trial(Subject("lc", {"dense_share": 0.1}))
    list(trial.run())
    assert trial.handle.journal[-1].step == STEPS


def test_the_penalty_pulls_weights_towards_the_copy():
    net = nn.Linear(4, 1, bias=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    sparse = regrow.sparsify(
        net, optimizer, "lc", density=0.5, steps=100, update_every=1, dense_share=0.0, mu=1.0, growth=1.0
    )
    before = None
    for step in range(30):
        optimizer.zero_grad()
        (net(torch.zeros(1, 4)).sum()).backward()
        optimizer.step()
        gap = float((sparse.parameters[0].theta * ~sparse.parameters[0].mask).abs().sum())
        if step == 1:
            before = gap
    assert gap < 0.3 * before
    assert sparse.penalty is not None


def test_other_forms_have_an_outcome():
    trial = Trial(Subject("lc", {"form": "l0-penalty", "alpha": 1e-6, "dense_share": 0.1}))
    list(trial.run())
    assert trial.handle.method.budget == "outcome"
    assert trial.handle.density < 1
