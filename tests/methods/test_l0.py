"""L0: the hard-concrete gate, its penalty, and what evaluation shows."""

import pytest
import torch
from torch import nn

import regrow
from regrow.errors import ConfigurationError
from regrow.methods.hard_concrete import CLOSED, gate, open_probability, rest_gate
from regrow.methods.l0 import expected
from regrow.testing.trial import Subject, Trial
from regrow.weighting import Trained


def near(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_gates_of_the_vector():
    log_alpha, u = near(0, 0, 0, 0, 2, -2, 1, -3), near(0.5, 0.1, 0.3, 0.9, 0.2, 0.7, 0.05, 0.95)
    assert torch.allclose(gate(log_alpha, u), near(0.5, 0, 0.162914, 1, 0.758187, 0.080850, 0, 0.475012), atol=1e-6)


def test_probabilities_and_gates_of_evaluation():
    log_alpha = near(-3, -2, -1, 0, 1, 3)
    chances = near(0.197594, 0.400975, 0.645335, 0.831822, 0.930771, 0.990034)
    assert torch.allclose(open_probability(log_alpha), chances, atol=1e-6)
    assert torch.allclose(rest_gate(log_alpha), near(0, 0.043044, 0.222730, 0.5, 0.777270, 1), atol=1e-6)
    assert pytest.approx(-2.397895, abs=1e-6) == CLOSED
    assert float(rest_gate(near(CLOSED))) == pytest.approx(0, abs=1e-12)


def test_the_gate_of_evaluation_is_not_the_mean_of_drawn_ones():
    u = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
    means = [float(gate(near(log_alpha), u).mean()) for log_alpha in (-1, 1)]
    assert means == pytest.approx([0.293, 0.707], abs=5e-4)


def test_penalty_of_the_vector():
    layer = nn.Linear(3, 2)
    theta = near(0.5, -1, 0.2, 0.1, 1, 2).view(3, 2).T.contiguous()
    view = Trained(layer, 0, theta, theta != 0, {"log_alpha": near(0, 1, -2).view(1, 3)}, samples=60000)
    assert float(expected(view, 0.1, 5e-4)) == pytest.approx(7.224776e-06, rel=1e-6)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def test_a_strong_penalty_closes_gates_and_a_weak_one_does_not():
    strong = Trial(Subject("l0", {"strength": 100.0, "drop": 0.9, "input_drop": 0.9}), optimizer=adam)
    weak = Trial(Subject("l0", {"strength": 0.0}), optimizer=adam)
    list(strong.run()), list(weak.run())
    means = [torch.cat([s["log_alpha"].flatten() for s in t.handle.trained.side.layers]).mean() for t in (strong, weak)]
    assert means[0] < means[1]


def test_log_alpha_stays_within_its_limits():
    trial = Trial(Subject("l0"))
    for side in trial.handle.trained.side.layers:
        side["log_alpha"].data.fill_(50.0)
    trial.step()
    for side in trial.handle.trained.side.layers:
        assert float(side["log_alpha"].detach().max()) == pytest.approx(4.60517, abs=1e-5)


def test_training_draws_gates_once_per_step_and_evaluation_none():
    trial = Trial(Subject("l0"))
    inputs = trial.batch(0)[0]
    first, second = trial.model(inputs), trial.model(inputs)
    assert torch.equal(first, second)
    trial.model.eval()
    shown = trial.model(inputs)
    assert not torch.equal(first, shown)
    trial.model.train()
    assert torch.equal(trial.model(inputs), first)
    trial.step()
    assert not torch.equal(trial.model(inputs), first)


def test_saved_weights_are_those_of_evaluation():
    trial = Trial(Subject("l0"))
    resting = {k: v.clone() for k, v in trial.model.state_dict().items()}
    trial.model(trial.batch(0)[0])
    assert not torch.equal(trial.model[3].weight, resting["3.weight"])
    saved = trial.model.state_dict()
    assert all(torch.equal(saved[k], resting[k]) for k in resting)


def test_a_backward_pass_across_a_change_of_mode_is_an_error():
    trial = Trial(Subject("l0"))
    loss = trial.loss(*trial.batch(0))
    trial.model.eval()
    trial.model(trial.batch(0)[0])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_weight_decay_missing_samples_and_sparse_kernels_are_refused():
    net = nn.Linear(6, 3)
    decayed = torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=1e-4)
    with pytest.raises(ConfigurationError, match=r"optimizer decays weight by 0.0001: set weight_decay=0"):
        regrow.sparsify(net, decayed, "l0", samples=10)
    plain = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(ConfigurationError, match="pass samples="):
        regrow.sparsify(net, plain, "l0")
    with pytest.raises(regrow.errors.UnsupportedError, match="leave execution at 'masked'"):
        regrow.sparsify(net, plain, "l0", samples=10, execution="sparse")
    sparse = regrow.sparsify(net, plain, "l0", samples=10)
    with pytest.raises(regrow.errors.UnsupportedError, match="leave execution at 'masked'"):
        sparse.execute("auto")
    sparse.detach()
    with pytest.raises(ConfigurationError, match="samples must be a positive whole number"):
        regrow.sparsify(net, plain, "l0", samples=0)
