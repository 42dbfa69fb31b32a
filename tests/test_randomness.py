"""Randomness is a function of names and numbers: never of a global generator, and never touching it."""

import torch

import regrow
from regrow import randomness
from tests.support.training import batches, bits, same_weights, sgd, small_net, sparse_run, train


def test_generators_are_functions_of_their_key():
    def draw(*key):
        return torch.rand(8, generator=randomness.generator(*key))

    assert torch.equal(draw(0, "grow", 3), draw(0, "grow", 3))
    different = [draw(0, "grow", 3), draw(1, "grow", 3), draw(0, "prune", 3), draw(0, "grow", 4), draw(0, "grow", "3")]
    assert all(not torch.equal(a, b) for i, a in enumerate(different) for b in different[:i])


def test_draws_follow_the_tensor():
    like = torch.zeros(3, 5, dtype=torch.bfloat16)
    uniform, normal = (make(like, randomness.generator(0)) for make in (randomness.uniform, randomness.normal))
    assert (uniform.dtype, uniform.shape) == (torch.float64, (3, 5))
    assert (normal.dtype, normal.shape) == (torch.bfloat16, (3, 5))
    assert 0 <= float(uniform.min()) <= float(uniform.max()) < 1


def test_draws_ignore_defaults_of_device_and_type():
    like = torch.zeros(4)
    usual = randomness.uniform(like, randomness.generator(0)), randomness.normal(like, randomness.generator(0))
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            again = randomness.uniform(like, randomness.generator(0)), randomness.normal(like, randomness.generator(0))
    finally:
        torch.set_default_dtype(before)
    assert all(torch.equal(a, b) for a, b in zip(usual, again, strict=True))


def test_the_global_generator_neither_matters_nor_moves():
    runs = []
    for disturb in (False, True):
        model, optimizer, handle = sparse_run(method="set")
        torch.manual_seed(1234 if disturb else 0)
        before = torch.random.get_rng_state()
        train(model, optimizer, batches(9))
        assert torch.equal(torch.random.get_rng_state(), before)
        runs.append((model, handle))
    assert torch.equal(bits(runs[0][1]), bits(runs[1][1]))
    assert same_weights(runs[0][0], runs[1][0])


def test_the_seed_matters():
    runs = [sparse_run(method="set") for _ in range(2)]
    masks = [bits(handle) for _, _, handle in runs]
    assert torch.equal(*masks)
    model = small_net()
    reseeded = regrow.sparsify(model, sgd(model), "set", density=0.3, steps=40, update_every=4, seed=1)
    assert not torch.equal(bits(reseeded), masks[0])


def test_coins_are_fair_whatever_the_neighbours():
    for seed in (0, 1, 2**62):
        drawn = randomness.coins(torch.arange(100_000), seed).float()
        assert set(drawn.tolist()) == {-1.0, 1.0}
        for lag in (1, 2, 64):
            assert abs(float((drawn[lag:] * drawn[:-lag]).mean())) < 0.02
        assert abs(float(drawn.mean())) < 0.02
    far = randomness.coins(torch.tensor([2**40, 2**40 + 1]), 3)
    assert torch.equal(far, randomness.coins(torch.arange(2**40, 2**40 + 9), 3)[:2])
