"""Every registered method conforms, and the suite catches methods that do not."""

from dataclasses import replace

import pytest
import torch

import regrow
from regrow.methods import build
from regrow.testing import checks
from regrow.testing.checks import CHECKS, ConformanceError, check_method
from regrow.topology.cycle import Change, rewire, to_masks
from regrow.topology.grow import Grow
from regrow.topology.initial import at_random
from regrow.topology.prune import Prune
from regrow.topology.redistribute import Redistribute
from regrow.topology.schedule import When, constant
from regrow.weighting import Weighting

ALL = [method.name for method in regrow.list_methods(show=False)]
VARIANTS = [
    ("sparse-momentum", {"reference": True}),
    ("sparse-momentum", {"redistribution": "magnitude", "growth": "random"}),
    ("sparse-momentum", {"redistribution": "none", "growth": "momentum-neuron", "pruning": "set"}),
    ("sparse-momentum", {"global_prune": True, "global_growth": True, "decay": "linear"}),
    ("sparse-momentum", {"pruning": "threshold", "redistribution": "nonzeros", "just_pruned": "zero"}),
    ("sparse-momentum", {"growth": "gradient", "decay": "constant"}),
    ("dsr", {"threshold": 0.1}),
    ("mest", {"soft": True, "gradient_weight": 0.5}),
    ("itop", {"growth": "random", "fresh_first": True}),
    ("lottery-ticket", {"rewind_step": 2, "select": "global"}),
    ("gradual-pruning", {"select": "global"}),
    ("granet", {"start_density": 1.0}),
    ("top-kast", {"exploration": 0.1}),
    ("sr-ste", {"n": 1, "m": 3}),
    ("movement", {"soft": True, "budget": "exact", "finetune_steps": 3}),
    ("movement", {"select": "global", "score_lr": None}),
    ("str", {"s_init": -2.5, "budget": "exact", "finetune_steps": 4}),
    ("dns", {"c": 0.3, "dense_share": 0.2, "budget": "exact", "finetune_steps": 3}),
    ("l-obs", {"updates": "exact", "rounds": 2}),
    ("obd", {"curvature": "fisher"}),
    ("l0", {"gates": "weight"}),
    ("l0", {"budget": "exact", "finetune_steps": 4}),
    ("variational-dropout", {"budget": "exact", "finetune_steps": 4}),
    ("lc", {"form": "l1-penalty", "alpha": 1e-5, "dense_share": 0.1}),
    ("targeted-dropout", {"ramp": 0.0}),
    ("soft-weight-sharing", {"dense_share": 0.1, "budget": "exact", "finetune_steps": 4}),
    ("bayesian-compression", {"budget": "exact", "finetune_steps": 2}),
    ("bayesian-compression", {"prior": "horseshoe"}),
    ("l-obs", {"updates": "summed"}),
    ("nest", {"width": 0.5}),
]


@pytest.mark.parametrize("name", ALL)
def test_every_registered_method_conforms(name):
    check_method(name)


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=lambda v: v if isinstance(v, str) else ",".join(v))
def test_variants_conform(name, options):
    quick = [c for c in CHECKS if c not in (checks.check_optimizers, checks.check_dtypes)]
    check_method(name, options=options, checks=quick)


@pytest.mark.parametrize("density", [0.05, 0.9])
@pytest.mark.parametrize("name", ALL)
def test_very_sparse_and_nearly_dense_networks_hold_their_budget(name, density):
    check_method(name, density=density, checks=[checks.check_budget, checks.check_layers_live])


def test_the_suite_is_reachable_from_the_package():
    assert regrow.testing.check_method is check_method


def sound(**changes):
    base = replace(
        build("set", {}), name="own", rate=constant(0.3), when=When(2), distribution="uniform", rate_needs_steps=False
    )
    return replace(base, **changes)


def one_more(update):
    """Grows one weight too many."""
    change = rewire(update, Prune(), None, Grow())
    free = (~change.masks[1]).reshape(-1).nonzero()[0]
    change.masks[1].view(-1)[free] = True
    return change


def emptied(update):
    """Moves a whole layer's weights to another one."""
    masks = [view.mask.clone() for view in update.layers]
    free = (~masks[1]).reshape(-1).nonzero().squeeze(1)[: update.layers[0].nnz]
    masks[0].zero_()
    masks[1].view(-1)[free] = True
    return to_masks(update, masks)


def too_few_at_first(setup):
    masks = at_random(setup)
    masks[1].view(-1)[masks[1].reshape(-1).nonzero()[0]] = False
    return masks


def leaky(setup):
    """Fills missing weights right before each forward pass."""

    def fill(module, *_):
        with torch.no_grad():
            module[3].weight.add_(1e-3)

    setup.model.register_forward_pre_hook(fill)
    return at_random(setup)


def pushes_missing(layer):
    layer.grad.add_(0.1)


def global_noise(layer):
    return torch.rand(layer.mask.shape)


class Forgetful:
    """Keeps its memory outside the state."""

    def __init__(self):
        self.calls = 0

    def __call__(self, layer):
        self.calls += 1
        return torch.full_like(layer.weight, float(self.calls)) * layer.weight.sin().mul(self.calls).cos()


def shrinks_everything(setup):
    """Decays all weights in each forward pass, frozen or not."""

    def decay(module, *_):
        with torch.no_grad():
            module[3].weight.mul_(0.9)

    setup.model.register_forward_pre_hook(decay)
    return at_random(setup)


def misreported(update):
    change = rewire(update, Prune(), None, Grow())
    return Change(change.masks, [torch.zeros_like(m) for m in change.masks], change.grown)


def share_of_weight_range(layer):
    return 1 / float(layer.weight[layer.mask].max() - layer.weight[layer.mask].min())


def single_precision_only(layer):
    if layer.weight.dtype != torch.float32:
        raise TypeError("float32 only")
    return layer.weight.abs()


def needs_buffer(layer):
    return layer.evidence.state()["momentum_buffer"].abs()


class Restless:
    """Shows other weights whenever it is asked."""

    def __init__(self):
        self.calls = 0

    def __call__(self, layer):
        self.calls += 1
        return layer.theta * (1 + 0.01 * self.calls)


class WrongSlope(torch.autograd.Function):
    """theta, with twice its derivative."""

    @staticmethod
    def forward(ctx, theta):
        return theta.clone()

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


def noisy_evaluation(setup):
    """Adds noise to outputs in either mode."""
    setup.model.register_forward_hook(lambda module, inputs, output: output + torch.rand(()))
    return at_random(setup)


def decays_in_secret(layers):
    return sum(layer.theta.square().sum() for layer in layers)


def sound_weighting(**pieces):
    return sound(weighting=Weighting(**{"show": lambda layer: layer.theta * layer.mask, **pieces}))


BROKEN = {
    "check_finished": sound_weighting(show=Restless()),
    "check_evaluation": sound(initial=noisy_evaluation),
    "check_derivatives": sound_weighting(show=lambda layer: WrongSlope.apply(layer.theta)),
    "check_neutral": replace(sound_weighting(penalty=decays_in_secret), neutral={}),
    "check_budget": sound(rewire=one_more),
    "check_layers_live": sound(rewire=emptied),
    "check_weights_outside_masks": sound(initial=leaky),
    "check_missing_state": sound(adjust=pushes_missing),
    "check_grown_weights": sound(grow=Grow(state="seed")),
    "check_deterministic": sound(grow=Grow(global_noise)),
    "check_global_randomness": sound(grow=Grow(global_noise)),
    "check_resume": sound(grow=Grow(Forgetful())),
    "check_journal": sound(rewire=misreported),
    "check_frozen_layers": sound(initial=shrinks_everything),
    "check_degenerate_shapes": sound(redistribute=Redistribute(share_of_weight_range)),
    "check_dtypes": sound(prune=Prune(single_precision_only)),
    "check_optimizers": sound(prune=Prune(needs_buffer)),
}


def test_a_sound_method_of_ones_own_conforms():
    check_method(sound())
    check_method(sound_weighting())


def test_there_is_a_broken_method_for_every_check():
    assert set(BROKEN) == {check.__name__ for check in CHECKS}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_method_is_caught_by_its_check(name):
    check = getattr(checks, name)
    with pytest.raises(ConformanceError, match=f"method 'own' fails\n  {name}"):
        check_method(BROKEN[name], checks=[check])


@pytest.mark.parametrize(
    ("piece", "weighting"),
    [
        ("train", {"train": lambda layer: WrongSlope.apply(layer.theta)}),
        ("penalty", {"penalty": lambda layers: WrongSlope.apply(layers[0].theta).square().sum()}),
        ("product", {"product": lambda call: call.multiply(call.x, WrongSlope.apply(call.trained.theta), call.bias)}),
    ],
)
def test_a_wrong_derivative_of_any_piece_is_caught(piece, weighting):
    with pytest.raises(ConformanceError, match=f"the {piece} of layer"):
        check_method(sound_weighting(**weighting), checks=[checks.check_derivatives])


def test_a_wrong_number_of_first_weights_is_caught():
    with pytest.raises(ConformanceError, match=r"starts with 66 weights where the budget is 67"):
        check_method(sound(initial=too_few_at_first), checks=[checks.check_budget])


def test_every_failure_is_listed():
    with pytest.raises(ConformanceError) as error:
        check_method(
            sound(grow=Grow(global_noise)), checks=[checks.check_deterministic, checks.check_global_randomness]
        )
    assert "check_deterministic" in str(error.value)
    assert "check_global_randomness" in str(error.value)
