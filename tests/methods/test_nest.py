"""NeST: which connections grow, where they start, and how the density moves."""

from itertools import pairwise

import pytest
import torch
from torch import nn

import regrow
from regrow.calibration import bridging_gradients
from regrow.errors import ConfigurationError
from regrow.methods.bridge import neuron
from regrow.methods.nest import grown_values, up_and_down
from regrow.scope import choose
from regrow.testing.trial import Subject, Trial
from tests.support.views import view

G = torch.tensor([[0.1, -0.5, 0.02], [0.3, 0.05, -0.4]])


def test_growth_of_the_vector():
    mask = torch.tensor([[True, False, True], [False, False, False]])
    born, start = grown_values(view(torch.zeros(2, 3), mask, gradient=G), 2, 0.1)
    assert born.nonzero().tolist() == [[0, 1], [1, 2]]
    assert start[born].tolist() == pytest.approx([0.05, 0.04])


def test_density_rises_and_falls():
    curve = up_and_down(0.1, 0.3, 0.03, 0.3, 0.8)
    assert [round(curve(t), 4) for t in (0.0, 0.15, 0.3, 0.55, 0.8, 1.0)] == [0.1, 0.2, 0.3, 0.0949, 0.03, 0.03]
    assert up_and_down(0.1, 0.3, 1.0, 0.3, 0.8)(0.0) == 1.0


def test_a_run_grows_from_its_seed_and_ends_at_its_density():
    trial = Trial(Subject("nest"))
    counts = [trial.handle.nonzeros, *(state.handle.nonzeros for state in trial.run())]
    assert counts[0] == 22
    assert max(counts) > counts[0]
    assert counts[-1] == 67


def test_grown_weights_start_with_one_step_of_descent():
    trial = Trial(Subject("nest", {"step": 0.5}))
    before = trial.masks()
    list(trial.run(2))
    born = [new & ~old for old, new in zip(before, trial.masks(), strict=True)]
    assert any(bool(b.any()) for b in born)
    for (_, weight, _, _), b in zip(trial.layers(), born, strict=True):
        assert bool((weight[b] != 0).all())


def test_the_bridge_of_the_vector():
    psi, omega = neuron(torch.tensor([[-0.09]]), 1.0, torch.ones(1, 1))
    assert psi.tolist() == pytest.approx([-0.3])
    assert omega.tolist() == pytest.approx([0.3])
    signs = torch.tensor([[-1.0, 1.0], [1.0, 1.0]])
    psi, omega = neuron(torch.tensor([[-0.09, 0.01], [0.04, 0.0]]), 0.5, signs)
    assert psi.tolist() == pytest.approx([0.3, 0.2])
    assert omega.tolist() == pytest.approx([-0.3 + 0.2, 0.0])


def a_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 3))


DATA = torch.randn(40, 6, generator=torch.Generator().manual_seed(1)), torch.arange(40) % 3


def test_bridging_gradients_are_those_of_a_new_connection_across_a_layer():
    net = a_net()
    layers, _ = choose(net, "fully-sparse")
    halves = [(DATA[0][:30], DATA[1][:30]), (DATA[0][30:], DATA[1][30:])]
    (found,) = bridging_gradients(net, [(layers[0], layers[1])], halves, lambda total: total)
    across = torch.zeros(6, 16, requires_grad=True)  # straight from what the first layer reads to what the second gives
    hidden = net[2](net[1](net[0](DATA[0]))) + DATA[0] @ across
    nn.functional.cross_entropy(net[4](net[3](hidden)), DATA[1]).backward()
    assert torch.allclose(found, -across.grad.double(), atol=1e-7)


def grow_with(width, steps=40, peak=0.6, **options):
    net = a_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    sparse = regrow.sparsify(
        net, optimizer, "nest", density=0.3, steps=steps, update_every=1, width=width, calibration=[DATA], seed_density=0.2, peak=peak,
        **options,
    )  # fmt: skip
    seen = [sparse.masks]
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(DATA[0]), DATA[1]).backward()
        optimizer.step()
        assert sparse.nonzeros == sparse.budget
        seen.append(sparse.masks)
    return net, sparse, seen


def awake(masks):
    return [int((masks[a].any(1) | masks[b].any(0)).sum()) for a, b in (("0", "2"), ("2", "4"))]


def test_neurons_sleep_in_the_seed_and_wake_while_it_grows():
    _, sparse, seen = grow_with(0.4, grow_until=0.5)
    assert awake(seen[0]) == [8, 6]
    counts = [awake(masks) for masks in seen[:21]]
    assert counts == sorted(counts), "none falls asleep while the network grows"
    assert awake(seen[20])[0] > 15
    assert sparse.nonzeros == round(0.3 * sparse.numel)


def test_a_neuron_wakes_with_weights_on_both_sides():
    _, _, seen = grow_with(0.4, grow_until=0.5)
    for before, after in pairwise(seen[:21]):
        slept = ~(before["0"].any(1) | before["2"].any(0))
        woke = slept & after["0"].any(1) & after["2"].any(0)
        if bool(woke.any()):
            return
    raise AssertionError("no neuron woke with fan-in and fan-out at once")


def test_connections_of_sleeping_neurons_do_not_grow():
    _, _, seen = grow_with(0.4, grow_until=0.5, peak=0.3)
    for before, after in pairwise(seen[:6]):  # later there is no room left between those that are awake
        for below, above in (("0", "2"), ("2", "4")):
            slept = ~(before[below].any(1) | before[above].any(0))
            half = slept & (after[below].any(1) ^ after[above].any(0))
            assert not bool(half.any()), "a neuron wakes on both sides or not at all"


def test_sleeping_neurons_need_data():
    net = a_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with pytest.raises(ConfigurationError, match="looks at data when it prunes"):
        regrow.sparsify(net, optimizer, "nest", density=0.3, steps=40, width=0.4)


def test_short_runs_have_updates_enough():
    net = a_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    sparse = regrow.sparsify(net, optimizer, "nest", density=0.3, steps=120, steps_per_epoch=60)
    assert sparse.settings.clock.every == 2
