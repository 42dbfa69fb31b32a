"""Growth evidence: momentum of missing weights is what a run with dense gradients would have."""

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adagrad, Adam, AdamW, Muon, NAdam, RAdam, RMSprop

import regrow
from regrow.defaults import LETTER
from regrow.errors import ConfigurationError
from regrow.momentum import ADAM, HEAVY_BALL, MUON, OWN_AVERAGE, Moments, family_of, reset_slots, window_length
from tests.support.training import batches, loss_of, small_net, train

FIRST_MOMENTS = {
    "momentum": (lambda p, mu: SGD(p, lr=0.05, momentum=mu), "momentum_buffer"),
    "nesterov": (lambda p, mu: SGD(p, lr=0.05, momentum=mu, nesterov=True), "momentum_buffer"),
    "dampening": (lambda p, mu: SGD(p, lr=0.05, momentum=mu, dampening=0.3), "momentum_buffer"),
    "decay": (lambda p, mu: SGD(p, lr=0.05, momentum=mu, weight_decay=0.1), "momentum_buffer"),
    "maximize": (lambda p, mu: SGD(p, lr=0.001, momentum=mu, maximize=True), "momentum_buffer"),
    "foreach": (lambda p, mu: SGD(p, lr=0.05, momentum=mu, nesterov=True, foreach=True), "momentum_buffer"),
    "fused": (lambda p, mu: SGD(p, lr=0.05, momentum=mu, nesterov=True, fused=True), "momentum_buffer"),
    "adam": (lambda p, mu: Adam(p, lr=0.01, betas=(mu, 0.99)), "exp_avg"),
    "adam-fused": (lambda p, mu: Adam(p, lr=0.01, betas=(mu, 0.99), weight_decay=0.1, fused=True), "exp_avg"),
    "adamw": (lambda p, mu: AdamW(p, lr=0.01, betas=(mu, 0.99)), "exp_avg"),
    "nadam": (lambda p, mu: NAdam(p, lr=0.01, betas=(mu, 0.99)), "exp_avg"),
    "radam": (lambda p, mu: RAdam(p, lr=0.01, betas=(mu, 0.99)), "exp_avg"),
    "muon": (lambda p, mu: Muon(p, lr=0.02, momentum=mu), "momentum_buffer"),
}


def observed(make, tolerance, steps=15, update_every=15, **arguments):
    """Momentum that growth sees at the update, and the state of an optimizer that got all gradients of the same weights."""
    model = small_net()
    weights = [m.weight for m in model if isinstance(m, nn.Linear)]
    optimizer = make(weights)
    seen = {}

    @regrow.needs("momentum")
    def spy(layer):
        seen[layer.index] = layer.momentum.clone()
        return layer.momentum.abs()

    handle = regrow.sparsify(
        model,
        optimizer,
        density=0.3,
        steps=200,
        update_every=update_every,
        grow=spy,
        window_tolerance=tolerance,
        **LETTER,
        **arguments,
    )
    dense = [nn.Parameter(w.detach().clone()) for w in weights]
    twin, gradients = make(dense), []
    for batch in batches(steps):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        gradients.append(torch.autograd.grad(loss, weights, retain_graph=True))
        for full, weight, grad in zip(dense, weights, gradients[-1], strict=True):
            full.data.copy_(weight.data)
            full.grad = grad.clone()
        loss.backward()
        masks = [s.mask.clone() for s in handle.parameters]
        optimizer.step()
        twin.step()
    return seen, [twin.state[p] for p in dense], gradients, masks, handle


@pytest.mark.parametrize("name", FIRST_MOMENTS)
def test_full_window_equals_dense_momentum(name):
    make, slot = FIRST_MOMENTS[name]
    seen, states, *_ = observed(lambda p: make(p, 0.9), tolerance=0)
    for index, state in enumerate(states):
        expected = state[slot]
        if slot == "exp_avg":
            expected = expected / (state["exp_avg_sq"].sqrt() + 1e-8)
        torch.testing.assert_close(seen[index], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", FIRST_MOMENTS)
def test_default_window_misses_no_more_than_its_tolerance(name):
    """mu = 0.5 and tolerance 1e-3 give K = 10 of the 15 steps."""
    make, slot = FIRST_MOMENTS[name]
    collected = {}

    def keep_window(handle):
        collected.update({i: s.moments._first().clone() for i, s in enumerate(handle.parameters)})

    seen, states, gradients, masks, handle = observed(lambda p: make(p, 0.5), tolerance=1e-3, steps=14)
    assert not seen
    assert [s.moments.seen for s in handle.parameters] == [9] * 3
    keep_window(handle)
    for index, (state, mask) in enumerate(zip(states, masks, strict=True)):
        largest = max(float(step[index].abs().max()) for step in gradients)
        assert not torch.equal(collected[index], state[slot])
        error = (collected[index] - state[slot])[~mask].abs().max()
        assert error <= 4e-3 * largest, (name, index)


@pytest.mark.parametrize(
    "make", [lambda p: RMSprop(p, lr=1e-3, momentum=0.9), lambda p: Adagrad(p, lr=0.01), lambda p: SGD(p, lr=0.05)]
)
def test_own_average_where_there_is_no_first_moment(make):
    seen, _, gradients, *_ = observed(make, tolerance=0)
    for index in range(3):
        average = torch.zeros_like(gradients[0][index])
        for step in gradients:
            average = 0.9 * average + 0.1 * step[index]
        torch.testing.assert_close(seen[index], average, rtol=1e-5, atol=1e-8)


def test_pure_gradient_on_request_leaves_weight_decay_out():
    seen, _, gradients, *_ = observed(
        lambda p: SGD(p, lr=0.05, momentum=0.9, weight_decay=0.5), tolerance=0, momentum="gradient"
    )
    average = torch.zeros_like(gradients[0][0])
    for step in gradients:
        average = 0.9 * average + 0.1 * step[0]
    torch.testing.assert_close(seen[0], average, rtol=1e-5, atol=1e-8)


def test_momentum_carries_over_an_update_if_the_window_never_closes():
    """Past two updates with tolerance 0, removed and grown weights included."""
    _, states, _, _, handle = observed(lambda p: SGD(p, lr=0.05, momentum=0.9), tolerance=0, steps=14, update_every=5)
    assert handle.updates == 2
    for index, state in enumerate(states):
        mine = handle.network.view(index).momentum
        torch.testing.assert_close(mine, state["momentum_buffer"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["momentum", "adamw", "muon"])
def test_grown_weights_start_with_the_momentum_growth_saw(name):
    make, slot = FIRST_MOMENTS[name]
    seen, states, _, masks, handle = observed(lambda p: make(p, 0.9), tolerance=0)
    grown = 0
    for sparse, before, state in zip(handle.parameters, masks, states, strict=True):
        born = sparse.mask & ~before
        grown += int(born.count_nonzero())
        torch.testing.assert_close(sparse.state()[slot][born], state[slot][born], rtol=1e-4, atol=1e-6)
        assert not sparse.parameter.detach()[born].any()
    assert grown > 0
    assert seen


@pytest.mark.parametrize("name", ["momentum", "adamw", "muon"])
def test_grown_weights_start_with_the_optimizers_momentum_where_growth_saw_an_own_average(name):
    """Missing weights do not decay, so that at coefficient 0.9 both averages tell the same of them."""
    make, slot = FIRST_MOMENTS[name]
    _, states, _, masks, handle = observed(lambda p: make(p, 0.9), tolerance=0, momentum="gradient")
    born = [sparse.mask & ~before for sparse, before in zip(handle.parameters, masks, strict=True)]
    assert any(mark.any() for mark in born)
    for sparse, mark, state in zip(handle.parameters, born, states, strict=True):
        torch.testing.assert_close(sparse.state()[slot][mark], state[slot][mark], rtol=1e-4, atol=1e-6)


def test_an_own_average_seeds_another_coefficient_at_its_level():
    """Under a constant gradient g heavy-ball momentum settles at g (1 - dampening) / (1 - mu)."""
    weight = nn.Parameter(torch.zeros(3, 4))
    optimizer = SGD([weight], lr=0.1, momentum=0.99, dampening=0.5)
    gradient = torch.randn(3, 4)
    moments = Moments(weight, OWN_AVERAGE, dict, lambda: optimizer.param_groups[0], HEAVY_BALL)
    for _ in range(100):
        moments.collect(gradient.clone(), smooth=True)
    torch.testing.assert_close(moments.seeds()["momentum_buffer"], 50 * gradient, rtol=1e-3, atol=1e-5)


def test_a_handle_on_a_used_optimizer_keeps_removed_momentum_in_proportion():
    """Adam that has stepped before: what a window of few steps collects is brought to the bias of all steps, and back."""
    model = small_net()
    optimizer = Adam(model.parameters(), lr=0.01)
    data = batches(30)
    for batch in data[:20]:
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
    handle = regrow.sparsify(
        model, optimizer, density=0.5, steps=40, update_every=4, window_tolerance=0, start="random"
    )
    for batch in data[20:24]:
        before = {n: optimizer.state[model[int(n)].weight].get("exp_avg").clone() for n in handle.masks}
        masks = {n: m.clone() for n, m in handle.masks.items()}
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        grads = {n: model[int(n)].weight.grad.clone() for n in handle.masks}
        optimizer.step()
    lost = {n: masks[n] & ~handle.masks[n] for n in masks}
    assert any(mark.any() for mark in lost.values())
    for sparse, name in zip(handle.parameters, masks, strict=True):
        expected = 0.9 * before[name] + 0.1 * grads[name]
        torch.testing.assert_close(sparse.moments._first()[lost[name]], expected[lost[name]], rtol=1e-4, atol=1e-7)


def test_a_short_window_is_brought_to_the_bias_of_all_steps():
    """Under a constant gradient g Adam holds g (1 - beta^t) after t steps; a window of 5 of 100 steps must say the same."""
    weight = nn.Parameter(torch.zeros(3, 4))
    optimizer = Adam([weight], betas=(0.9, 0.999))
    gradient = torch.randn(3, 4)
    moments = Moments(weight, ADAM, lambda: {"step": torch.tensor(100.0)}, lambda: optimizer.param_groups[0])
    for _ in range(5):
        moments.collect(gradient.clone(), smooth=True)
    seeds = moments.seeds()
    torch.testing.assert_close(seeds["exp_avg"], gradient * (1 - 0.9**100))
    torch.testing.assert_close(seeds["exp_avg_sq"], gradient**2 * (1 - 0.999**100))
    torch.testing.assert_close(moments.momentum(), seeds["exp_avg"] / (seeds["exp_avg_sq"].sqrt() + 1e-8))


def test_family_of():
    weights = [nn.Parameter(torch.zeros(2, 2))]

    def family(optimizer, **arguments):
        return family_of(optimizer, optimizer.param_groups[0], **arguments)

    assert family(SGD(weights, lr=1, momentum=0.9)) is HEAVY_BALL
    assert family(SGD(weights, lr=1)) is OWN_AVERAGE
    assert family(Adam(weights)) is ADAM
    assert family(Muon(weights)) is MUON
    assert family(RMSprop(weights)) is OWN_AVERAGE
    assert family(Adam(weights), pure_gradient=True) is OWN_AVERAGE


@pytest.mark.parametrize(
    ("coefficient", "tolerance", "interval", "expected"),
    [
        (0.9, 1e-3, 540, 66),
        (0.9, 1e-3, 50, 50),
        (0.99, 1e-3, 1000, 688),
        (0.5, 1e-3, 99, 10),
        (0.9, 0, 7, 7),
        (0.0, 0.1, 7, 7),
    ],
)
def test_window_length(coefficient, tolerance, interval, expected):
    assert window_length(coefficient, tolerance, interval) == expected


def test_reset_slots_starts_unmeasured_squares_at_the_mean():
    present = torch.tensor([True, True, False, False])
    born, lost = torch.tensor([False, False, True, False]), torch.tensor([False, False, False, True])
    slots = {"exp_avg": torch.ones(4), "max_exp_avg_sq": torch.tensor([1.0, 3.0, 9.0, 9.0])}
    reset_slots(slots, lost, born, present, {"exp_avg": torch.full((4,), 5.0)})
    assert slots["exp_avg"].tolist() == [1, 1, 5, 0]
    assert slots["max_exp_avg_sq"].tolist() == [1, 3, 2, 0]


@pytest.mark.parametrize("attribute", ["gradient", "momentum"])
def test_a_criterion_that_reads_what_it_did_not_declare(attribute):
    model = small_net()
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    handle = regrow.sparsify(
        model,
        optimizer,
        "set",
        density=0.3,
        steps=40,
        update_every=2,
        grow=lambda layer: getattr(layer, attribute).abs(),
    )
    masks = {name: mask.clone() for name, mask in handle.masks.items()}
    with pytest.raises(ConfigurationError, match=rf"reads layer\.{attribute}.*@regrow\.needs\('{attribute}'\)"):
        train(model, optimizer, batches(2))
    assert all(torch.equal(handle.masks[name], mask) for name, mask in masks.items())
    assert handle.updates == 0


def test_second_moments_need_adam():
    model = small_net()
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    regrow.sparsify(model, optimizer, density=0.3, steps=40, update_every=1, redistribution="second-moment")
    loss_of(model, batches(1)[0]).backward()
    with pytest.raises(ConfigurationError, match="second moments of Adam"):
        optimizer.step()
