"""What happens to a gradient between backward and step: masks, clipping, accumulation, scalers, hand-made gradients."""

import pytest
import torch
from torch import nn

import regrow
from regrow.errors import ConfigurationError
from regrow.parameter import momentum_scales
from tests.support.training import (
    assert_sparse,
    batches,
    bits,
    loss_of,
    same_weights,
    sgd,
    small_net,
    sparse_run,
    train,
)


def first(handle):
    return handle.parameters[0]


def dense_gradients(model, batch):
    weights = [m.weight for m in model if isinstance(m, nn.Linear)]
    return torch.autograd.grad(loss_of(model, batch), weights)


def test_the_gradient_is_masked_as_it_arrives():
    model, _, handle = sparse_run()
    batch = batches(1)[0]
    dense = dense_gradients(model, batch)
    loss_of(model, batch).backward()
    for sparse, full in zip(handle.parameters, dense, strict=True):
        assert torch.equal(sparse.parameter.grad, full * sparse.mask)
        assert torch.equal(sparse.incoming, full)


@pytest.mark.parametrize("tolerance", [0, 0.99])
def test_clipping_norms_count_present_weights_only(tolerance):
    """Inside a growth window (tolerance 0: always) and outside of it the norm is the same one."""
    model, _, handle = sparse_run(window_tolerance=tolerance)
    assert handle.needs_missing_gradients == (tolerance == 0)
    batch = batches(1)[0]
    masked = [g * s.mask for g, s in zip(dense_gradients(model, batch), handle.parameters, strict=True)]
    loss_of(model, batch).backward()
    biases = [m.bias.grad for m in model if isinstance(m, nn.Linear)]
    by_hand = torch.cat([g.flatten() for g in (*masked, *biases)]).norm()
    assert nn.utils.clip_grad_norm_(model.parameters(), 1e9) == pytest.approx(float(by_hand), rel=1e-6)


def test_evidence_of_missing_weights_is_clipped_by_the_same_factor():
    model, optimizer, handle = sparse_run(window_tolerance=0)
    batch = batches(1)[0]
    dense = dense_gradients(model, batch)
    loss_of(model, batch).backward()
    norm = float(nn.utils.clip_grad_norm_(model.parameters(), 0.01))
    optimizer.step()
    for sparse, full in zip(handle.parameters, dense, strict=True):
        torch.testing.assert_close(sparse.moments.first, full * (0.01 / (norm + 1e-6)))
        torch.testing.assert_close(sparse.state()["momentum_buffer"], sparse.moments.first * sparse.mask)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_micro_batches_equal_one_batch(set_to_none):
    whole, whole_optimizer, whole_handle = sparse_run(window_tolerance=0)
    parts, optimizer, handle = sparse_run(window_tolerance=0)
    for inputs, targets in batches(13):
        whole_optimizer.zero_grad(set_to_none)
        loss_of(whole, (inputs, targets)).backward()
        whole_optimizer.step()
        optimizer.zero_grad(set_to_none)
        for chunk in zip(inputs.chunk(4), targets.chunk(4), strict=True):
            (loss_of(parts, chunk) / 4).backward()
        optimizer.step()
        assert first(handle).moments.seen == first(whole_handle).moments.seen
        torch.testing.assert_close(first(handle).moments.first, first(whole_handle).moments.first)
    assert handle.step == 13
    assert handle.updates == 3
    assert torch.equal(bits(handle), bits(whole_handle))


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_thrown_away_leave_no_trace(set_to_none):
    kept, kept_optimizer, kept_handle = sparse_run(window_tolerance=0)
    model, optimizer, handle = sparse_run(window_tolerance=0)
    data, waste = batches(9), batches(9, seed=8)
    train(kept, kept_optimizer, data)
    for batch, useless in zip(data, waste, strict=True):
        loss_of(model, useless).backward()
        optimizer.zero_grad(set_to_none)
        loss_of(model, batch).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none)
    assert handle.step == 9
    assert torch.equal(bits(handle), bits(kept_handle))
    assert same_weights(model, kept)
    assert torch.equal(first(handle).moments.first, first(kept_handle).moments.first)


def test_autograd_grad_is_no_backward():
    """Gradient penalties and the like look at gradients without accumulating them."""
    plain, plain_optimizer, _ = sparse_run(window_tolerance=0)
    model, optimizer, handle = sparse_run(window_tolerance=0)
    data = batches(9)
    train(plain, plain_optimizer, data)
    for batch in data:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
        loss.backward()
        torch.autograd.grad(loss_of(model, batch), list(model.parameters()))
        optimizer.step()
    assert same_weights(model, plain)
    assert handle.updates == 2


@pytest.mark.parametrize("method", ["sparse-momentum", "rigl", "set"])
def test_gradients_assigned_by_hand_equal_backward(method):
    plain, plain_optimizer, plain_handle = sparse_run(method=method)
    model, optimizer, handle = sparse_run(method=method)
    data = batches(13)
    train(plain, plain_optimizer, data)
    for batch in data:
        loss_of(model, batches(1, seed=5)[0]).backward()  # overwritten below
        optimizer.zero_grad()
        found = torch.autograd.grad(loss_of(model, batch), list(model.parameters()))
        for parameter, grad in zip(model.parameters(), found, strict=True):
            parameter.grad = grad.clone().mul_(1)
        optimizer.step()
        assert_sparse(handle)
    assert torch.equal(bits(handle), bits(plain_handle))
    assert same_weights(model, plain)


def test_terms_added_to_the_gradient_do_not_scale_the_evidence():
    """A penalty by hand or a sign flipped: missing weights follow what happened to the gradient itself."""
    for change, factor in ((lambda p: p.grad.add_(p.detach(), alpha=1e-3), 1.0), (lambda p: p.grad.neg_(), -1.0)):
        model, optimizer, handle = sparse_run(window_tolerance=0)
        batch = batches(1, size=64)[0]
        dense = dense_gradients(model, batch)
        loss_of(model, batch).backward()
        for parameter in model.parameters():
            change(parameter)
        optimizer.step()
        for sparse, full in zip(handle.parameters, dense, strict=True):
            torch.testing.assert_close(sparse.moments.first, factor * full, rtol=2e-2, atol=1e-6)


def test_gradients_changed_in_place_after_backward_are_masked_again():
    model, optimizer, handle = sparse_run()
    for batch in batches(9):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        for parameter in model.parameters():
            parameter.grad.add_(1e-3 * torch.randn_like(parameter))
        optimizer.step()
        assert_sparse(handle)


def test_groups_with_different_momentum_are_compared_in_one_unit():
    model = small_net()
    groups = [
        {"params": model[0].parameters(), "momentum": 0.5},
        {"params": model[2].parameters(), "momentum": 0.9, "dampening": 0.5, "lr": 0.01},
        {"params": model[4].parameters()},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    handle = regrow.sparsify(model, optimizer, density=0.3, steps=40, update_every=4)
    scales = momentum_scales(handle.parameters)
    assert scales == pytest.approx({"0.weight": 0.5, "2.weight": 0.2, "4.weight": 0.1})
    seen = {}

    @regrow.needs("momentum")
    def spy(layer):
        seen[layer.name] = layer.momentum_scale
        return layer.momentum.abs()

    handle.detach()
    handle = regrow.sparsify(model, optimizer, density=0.3, steps=40, update_every=4, grow=spy, start="random")
    optimizer.param_groups[0]["momentum"] = 0.8  # a scheduler's doing
    train(model, optimizer, batches(5), lambda: assert_sparse(handle))
    assert seen == pytest.approx({"0": 0.2, "2": 0.2, "4": 0.1})


def test_one_momentum_for_all_needs_no_scale():
    _, _, handle = sparse_run()
    assert set(momentum_scales(handle.parameters).values()) == {1.0}


def test_frozen_before_stays_dense_and_frozen_later_stays_put():
    model = small_net()
    model[2].weight.requires_grad_(False)
    optimizer = sgd(model)
    handle = regrow.sparsify(model, optimizer, density=0.3, steps=80, update_every=4)
    assert set(handle.masks) == {"0", "4"}
    assert next(row for row in handle.plan() if row.layer == "2").reason == "frozen"
    train(model, optimizer, batches(5))
    model[0].weight.requires_grad_(False)
    mask, weight = handle.masks["0"].clone(), model[0].weight.detach().clone()
    train(model, optimizer, batches(9), lambda: assert_sparse(handle))
    assert handle.updates == 3
    assert torch.equal(handle.masks["0"], mask)
    assert torch.equal(model[0].weight, weight)
    model[4].weight.requires_grad_(False)
    train(model, optimizer, batches(4))
    model[0].weight.requires_grad_(True)
    train(model, optimizer, batches(8), lambda: assert_sparse(handle))
    assert handle.updates == 5
    assert not torch.equal(handle.masks["0"], mask)


@pytest.mark.parametrize("method", ["sparse-momentum", "rigl", "set"])
def test_a_layer_without_gradient_takes_part_with_zero_evidence(method):
    class Branch(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.idle = nn.Linear(12, 3), nn.Linear(12, 3)

        def forward(self, x):
            return self.used(x)

    torch.manual_seed(0)
    model = Branch()
    optimizer = sgd(model)
    handle = regrow.sparsify(model, optimizer, method, density=0.3, steps=40, update_every=3)
    train(model, optimizer, batches(8), lambda: assert_sparse(handle))
    assert handle.updates >= 2


def test_tied_weights_are_one_layer():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.head = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 3)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.head(torch.tanh(self.b(torch.tanh(self.a(x)))))

    torch.manual_seed(0)
    model = Tied()
    optimizer = sgd(model)
    handle = regrow.sparsify(model, optimizer, density=0.25, steps=40, update_every=4)
    assert list(handle.masks) == ["a", "head"]
    batch = batches(1)[0]
    dense = torch.autograd.grad(loss_of(model, batch), model.a.weight)[0]
    loss_of(model, batch).backward()
    torch.testing.assert_close(handle.parameters[0].incoming, dense)
    optimizer.zero_grad()
    train(model, optimizer, batches(9), lambda: assert_sparse(handle))
    assert model.b.weight is model.a.weight
    assert handle.updates == 2


@pytest.mark.parametrize("linear_first", [True, False])
def test_weights_tied_to_an_embedding_stay_dense(linear_first):
    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            parts = [("out", nn.Linear(8, 20, bias=False)), ("embed", nn.Embedding(20, 8))]
            for name, part in parts if linear_first else parts[::-1]:
                self.add_module(name, part)
            self.hidden = nn.Linear(8, 8)
            self.out.weight = self.embed.weight

    model = Language()
    handle = regrow.sparsify(model, sgd(model), density=0.25, steps=40, update_every=10)
    assert list(handle.masks) == ["hidden"]
    assert any("embedding" in row.reason for row in handle.plan() if not row.sparse)


def test_an_optimizer_that_does_not_own_the_parameters():
    model, other = small_net(), small_net()
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(ConfigurationError, match=r"does not own 0\.weight: build the optimizer from this model"):
        regrow.sparsify(model, sgd(other), density=0.3, steps=10)
    with pytest.raises(ConfigurationError, match=r"does not own 4\.weight"):
        regrow.sparsify(model, sgd(model[:4]), density=0.3, steps=10)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    handle = regrow.sparsify(model, sgd(model[:4]), density=0.3, steps=10, update_every=5, scope=["4"])
    assert list(handle.masks) == ["0", "2"]
