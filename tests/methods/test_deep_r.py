"""DEEP-R: sign crossing, l1 prior, noise, revival at 1e-12."""

import pytest
import torch

from regrow.errors import ConfigurationError
from regrow.methods import build
from regrow.methods.method import StepView
from tests.support.manual import Manual


def plain_sgd(lr):
    return lambda parameters: torch.optim.SGD(parameters, lr=lr)


def test_a_weight_that_crosses_zero_is_replaced_by_one_of_the_layer_at_the_edge():
    run = Manual("deep-r", [[[0.05, -2.0, 3.0, 0.0, 0.0]]], [[[1, 1, 1, 0, 0]]], {"noise": 0.0, "l1": 0.0},
                 plain_sgd(0.1))  # fmt: skip
    signs = run.handle.network.layer_memory[0]["sign"]
    assert signs[0, :3].tolist() == [1, -1, 1]
    run.step([[1.0, 0.0, 0.0, 0.0, 0.0]])
    assert run.counts == [3]
    born = int((run.masks[0] & (run.weights[0].abs() < 1)).nonzero()[0, 1])
    assert float(run.weights[0][0, born]) == pytest.approx(1e-12 * int(signs[0, born]))
    assert run.weights[0][0, 1:3].tolist() == [-2.0, 3.0]


def test_a_weight_drawn_again_at_once_restarts_on_its_own_side():
    run = Manual("deep-r", [[[0.05, -2.0]]], [[[1, 1]]], {"noise": 0.0, "l1": 0.0}, plain_sgd(0.1))
    run.step([[1.0, 0.0]])
    assert run.handle.journal[0].layers[0].regrown_at_once == 1
    assert run.weights[0][0].tolist() == [pytest.approx(1e-12), -2.0]


def test_the_prior_pulls_present_weights_towards_zero():
    run = Manual("deep-r", [[[2.0, -2.0, 0.0]]], [[[1, 1, 0]]], {"noise": 0.0, "l1": 0.5}, plain_sgd(0.1))
    run.step([[0.0, 0.0, 0.0]])
    assert run.weights[0][0].tolist() == pytest.approx([1.95, -1.95, 0.0])


def test_the_noise_has_the_scale_of_the_learning_rate_and_touches_present_weights_only():
    method = build("deep-r", {"noise": 3.0})
    weight, mask = torch.zeros(4000), torch.arange(4000) < 2000
    step = StepView(0, weight, None, mask, mask, 0.1, {}, lambda *key: torch.Generator().manual_seed(1), 0.0)
    method.perturb(step)
    assert not weight[~mask].any()
    assert float(weight[mask].std()) == pytest.approx(0.3, rel=0.05)
    assert float(weight[mask].mean()) == pytest.approx(0.0, abs=0.03)


def test_signs_of_missing_weights_are_fair_coins_and_stay():
    run = Manual("deep-r", [torch.randn(40, 50)], density=0.2, options={"noise": 1.0}, optimizer=plain_sgd(0.5))
    signs = run.handle.network.layer_memory[0]["sign"].clone()
    assert abs(float(signs.float().mean())) < 0.1
    for _ in range(5):
        run.step(torch.randn(40, 50))
    assert torch.equal(run.handle.network.layer_memory[0]["sign"], signs)
    present = run.weights[0][run.masks[0]] * signs[run.masks[0]]
    assert bool((present > 0).all())
    assert run.counts == [400]


def test_the_ever_active_share_counts_every_update_also_those_not_journalled():
    run = Manual("deep-r", [torch.randn(20, 20)], density=0.1, options={"noise": 2.0}, optimizer=plain_sgd(0.5),
                 steps=200)  # fmt: skip
    union = run.masks[0]
    for _ in range(110):
        union |= run.step(torch.randn(20, 20)).masks[0]
        if run.handle.step == 101:
            share = float(union.float().mean())
    assert len(run.handle.journal) == 2
    assert run.handle.journal[1].layers[0].ever_active == pytest.approx(share)


def test_a_free_weight_starts_at_zero_takes_either_sign_and_goes_when_it_changes():
    run = Manual(
        "deep-r", [[[0.05, -2.0, 0.0]]], [[[1, 1, 0]]], {"noise": 0.0, "l1": 0.0, "signs": "free"}, plain_sgd(0.1)
    )
    run.step([[1.0, 0.0, 0.0]])
    assert run.masks[0][0].tolist() == [False, True, True]  # never where one was just removed
    assert run.weights[0][0].tolist() == [0.0, -2.0, 0.0]
    run.step([[0.0, 0.0, 7.0]])
    assert run.weights[0][0].tolist() == pytest.approx([0.0, -2.0, -0.7])
    run.step([[0.0, 0.0, -20.0]])
    assert run.masks[0][0].tolist() == [True, True, False]


def test_the_temperature_of_a_stage_sets_the_noise_of_the_gradient_until_masks_stay():
    method = build("deep-r", {"l1": 0.0, "temperature": [0.5, 0.02], "stages": [0.5], "stop": 0.9})
    assert method.perturb is None
    for progress, deviation in ((0.0, 0.1), (0.49, 0.1), (0.5, 0.02), (0.9, 0.0)):
        weight, grad = torch.zeros(4000), torch.zeros(4000)
        mask = torch.arange(4000) < 3000
        rng = lambda *key: torch.Generator().manual_seed(1)  # noqa: E731
        step = StepView(0, weight, grad, mask, mask, 7.0, {"sign": torch.ones(4000)}, rng, progress)
        method.adjust(step)
        assert float(grad[mask].std()) == pytest.approx(deviation, rel=0.05)
        assert not grad[~mask].any()
        assert not weight.any()


def test_masks_stay_after_the_stop():
    options = {"noise": 5.0, "stop": 0.5}
    run = Manual("deep-r", [torch.randn(10, 10)], density=0.2, options=options, optimizer=plain_sgd(0.5), steps=20)
    masks = [run.step(torch.randn(10, 10)).masks[0] for _ in range(20)]
    assert not torch.equal(masks[3], masks[9])
    assert all(torch.equal(mask, masks[9]) for mask in masks[10:])


def test_bad_stages_are_refused():
    with pytest.raises(ConfigurationError, match="one temperature more than there are stages"):
        build("deep-r", {"temperature": [1e-5], "stages": [0.5]})
    for bad in ([0.5, 0.2], [0.0], "0.5", [1.0]):
        with pytest.raises(ConfigurationError, match="stages must be increasing shares"):
            build("deep-r", {"stages": bad})
