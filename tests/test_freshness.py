"""Signs of training: none in fresh models of any usual initialisation, some in all that have learned."""

import pytest
import torch
from torch import nn

from regrow import models
from regrow.freshness import excess, signs_of_training
from regrow.scope import choose
from tests.support.training import sgd

INITIALISATIONS = {
    "torch's own": lambda w: None,
    "kaiming uniform": nn.init.kaiming_uniform_,
    "kaiming normal": nn.init.kaiming_normal_,
    "xavier uniform": nn.init.xavier_uniform_,
    "xavier normal": nn.init.xavier_normal_,
    "normal": nn.init.normal_,
    "positive": nn.init.uniform_,
    "truncated": nn.init.trunc_normal_,
    "orthogonal": nn.init.orthogonal_,
    "zeros": nn.init.zeros_,
    "constant": lambda w: nn.init.constant_(w, 0.1),
    "identity": lambda w: nn.init.eye_(w) if w.ndim == 2 else nn.init.dirac_(w),
}


def network():
    return nn.Sequential(
        nn.Conv2d(8, 16, 3), nn.GroupNorm(4, 16), nn.Flatten(), nn.Linear(144, 64), nn.LayerNorm(64), nn.Linear(64, 10)
    )


def signs(model, optimizer=None):
    return signs_of_training(model, optimizer or sgd(model), choose(model)[0])


@pytest.mark.parametrize("name", INITIALISATIONS)
def test_fresh_weights_show_none(name):
    for seed in range(20):
        torch.manual_seed(seed)
        model = network()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    INITIALISATIONS[name](parameter)
        assert signs(model) is None


@pytest.mark.parametrize("name", ["lenet300", "lenet300-bn", "lenet5", "wrn-28-2", "alexnet-s"])
def test_registered_models_show_none(name):
    for seed in range(3):
        assert signs(models.create(name, seed=seed)) is None


@pytest.mark.deep
@pytest.mark.parametrize("name", [info.name for info in models.list_models()])
def test_all_registered_models_show_none(name):
    for seed in range(5):
        assert signs(models.create(name, seed=seed)) is None


def test_fresh_transformers_show_none():
    transformers = pytest.importorskip("transformers")
    size = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}
    for kind in ("Bert", "Llama", "ViT"):
        config = getattr(transformers, f"{kind}Config")(**size)
        assert signs(getattr(transformers, f"{kind}Model")(config)) is None


def learned(model, steps, lr):
    torch.manual_seed(0)
    centres = torch.rand(10, 1, 28, 28)
    optimizer = sgd(model, lr=lr)
    for _ in range(steps):
        targets = torch.randint(10, (64,))
        inputs = centres[targets] + 0.3 * torch.randn(64, 1, 28, 28)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    return optimizer


@pytest.mark.parametrize(
    ("name", "steps", "lr"), [("lenet300", 40, 0.1), ("lenet300", 150, 0.01), ("lenet5", 100, 0.05)]
)
def test_weights_that_have_learned_show_it(name, steps, lr):
    model = models.create(name, seed=0)
    optimizer = learned(model, steps, lr)
    assert signs(model, optimizer) == "the optimizer has stepped them before"
    assert signs(model) == "they have directions that fresh ones do not have"


def test_norms_batches_and_zeros_tell_too():
    model = network()
    for norm in (model[1], model[4]):
        nn.init.normal_(norm.bias)
    assert signs(model) == "norms have biases that differ"
    counted = nn.Sequential(nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16))
    nn.init.normal_(counted[1].bias)  # as RepVGG starts
    for _ in range(9):
        counted(torch.randn(2, 8, 5, 5))
    assert signs(counted) is None
    counted(torch.randn(2, 8, 5, 5))
    assert signs(counted) == "batch norm has counted 10 batches"
    sparse = nn.Linear(64, 64)
    sparse.weight.data *= torch.rand(64, 64) < 0.1
    assert signs(sparse).endswith("% of them are zero")


def test_an_optimizer_with_state_from_the_beginning_has_not_stepped():
    model = network()
    assert signs(model, torch.optim.Adagrad(model.parameters())) is None


def test_excess_is_a_matter_of_directions_not_of_scale():
    torch.manual_seed(0)
    weight = torch.randn(64, 96)
    assert excess(weight) < 5
    assert excess(1e-6 * weight) == pytest.approx(excess(weight), rel=1e-2)
    spike = torch.outer(torch.randn(64), torch.randn(96))
    assert excess(weight + 0.5 * spike) > 50
    assert excess(torch.full((64, 96), float("nan"))) == 0
