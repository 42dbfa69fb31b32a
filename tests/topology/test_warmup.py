"""Grown weights begin to learn slowly."""

import copy

import pytest
import torch

import regrow
from regrow.defaults import GENTLE, LETTER
from regrow.errors import ConfigurationError
from tests.support.manual import Manual
from tests.support.training import batches, small_net, sparse_run, train


def run_of(options, **arguments):
    return Manual("sparse-momentum", [[[50.0, 200.0, 300.0, 0.0]]], [[[1, 1, 1, 0]]], {"decay": "constant", **options},
                  optimizer=lambda p: torch.optim.SGD(p, lr=1.0, momentum=0.5), update_every=4, steps=None, **arguments)  # fmt: skip


def test_the_gradient_of_a_grown_weight_rises_over_half_the_interval():
    run = run_of({"grown_momentum": "auto", "warmup": 1.0})
    for _ in range(4):
        run.step([[1.0, 1.0, 1.0, 9.0]])
    assert run.handle.masks["0"].tolist() == [[False, True, True, True]]
    assert run.slot("momentum_buffer").tolist()[0][3] == 0.0
    seen = []
    for _ in range(3):
        before = run.weights[0][0, 3].item()
        run.step([[0.0, 0.0, 0.0, 8.0]])
        seen.append((before - run.weights[0][0, 3].item(), run.slot("momentum_buffer")[0, 3].item()))
    # Buffers of 2, 1 + 4, 2.5 + 6: a quarter, a half, three quarters of the gradient.
    assert seen == [(2.0, 2.0), (5.0, 5.0), (8.5, 8.5)]


def test_present_weights_and_those_regrown_at_once_learn_on():
    run = run_of({"warmup": 1.0})
    for _ in range(4):
        run.step([[1.0, 1.0, 1.0, 9.0]])
    before = run.weights[0][0, 1].item()
    buffer = run.slot("momentum_buffer")[0, 1].item()
    run.step([[0.0, 2.0, 0.0, 0.0]])
    assert before - run.weights[0][0, 1].item() == pytest.approx(0.5 * buffer + 2.0)


def test_nothing_is_remembered_behind_the_warm_up():
    _, optimizer, handle = sparse_run(update_every=4, warmup=0.5)
    model = handle.model
    train(model, optimizer, batches(4))
    assert all("newborn" in memory for memory in handle.network.layer_memory)
    train(model, optimizer, batches(3, seed=2))
    assert not any(handle.network.layer_memory)


def test_a_resumed_run_warms_up_on():
    model, optimizer, handle = sparse_run(update_every=10, warmup=1.0)
    train(model, optimizer, batches(14))
    saved = copy.deepcopy([part.state_dict() for part in (model, optimizer, handle)])
    train(model, optimizer, batches(9, seed=3))
    other, its_optimizer, its_handle = sparse_run(seed=4, update_every=10, warmup=1.0)
    for part, state in zip((other, its_optimizer, its_handle), saved, strict=True):
        part.load_state_dict(state)
    train(other, its_optimizer, batches(9, seed=3))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_adam_keeps_the_moments_that_normalise_its_steps():
    model = small_net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    handle = regrow.sparsify(model, optimizer, density=0.3, steps=40, update_every=5, grown_momentum="auto", warmup=0.5)
    first = [sparse.mask.clone() for sparse in handle.parameters]
    train(model, optimizer, batches(5))
    born = [sparse.mask & ~mask for sparse, mask in zip(handle.parameters, first, strict=True)]
    assert any(mark.any() for mark in born)
    for sparse, mark in zip(handle.parameters, born, strict=True):
        assert bool((sparse.state()["exp_avg_sq"][mark] > 0).all())


def test_grown_weights_begin_gently_unless_the_letter_or_the_reference_is_asked_for():
    letter = regrow.methods.build("sparse-momentum", LETTER)
    reference = regrow.methods.build("sparse-momentum", {"reference": True})
    default = regrow.methods.build("sparse-momentum", {})
    gentle = regrow.methods.build("sparse-momentum", GENTLE)
    assert None not in (default.adjust, gentle.adjust)
    assert letter.adjust is reference.adjust is None
    assert default.grow == gentle.grow
    assert (default.grow.state, default.grow.warms_up) == ("normalised", True)
    assert letter.grow.state == reference.grow.state == "seed"
    with pytest.raises(ConfigurationError, match=r"warmup must lie in \[0, 1\]"):
        regrow.methods.build("sparse-momentum", {"warmup": 2})
