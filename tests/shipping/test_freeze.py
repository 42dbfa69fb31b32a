"""A frozen network answers as the trained one does, whatever it is made of."""

import copy
import pickle
import threading
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional

import regrow
from regrow import models, native
from regrow.errors import ConfigurationError, StateError
from regrow.shipping.freeze import freeze
from regrow.shipping.layer import FrozenLayer
from tests.support.networks_to_ship import difference, masked, masks_of, shaken

needs_kernels = pytest.mark.skipif(not native.available(), reason="native kernels not built")
SMALL = {"resnet50": (3, 64, 64), "gpt-10m": (64,), "gpt2-small": (64,)}
LARGE = {"gpt2-small"}


def registry_model(name, shape):
    options = {} if name.startswith("timm:") else {"input_shape": shape}
    model = shaken(models.create(name, seed=0, **options))
    if options and models.info(name).tokens:
        with torch.no_grad():  # drawn so small that attention is all but uniform: wrong queries would not be seen
            for parameter in model.blocks.parameters():
                if parameter.dim() == 2:
                    parameter.mul_(10)
    return model


def compare(model, masks, shape, samples=3, tokens=0):
    """Freeze and compare on random maps, or on ids below `tokens`."""
    masked(model, masks)
    x = torch.randint(tokens, (samples, *shape)) if tokens else torch.randn(samples, *shape)
    frozen = freeze(model, masks, torch.zeros_like(x[:1]))
    with torch.no_grad():
        wanted = model(x)
        assert difference(wanted, frozen(x)) < 5e-6
        assert difference(wanted, frozen(x[:1])[:1].expand_as(wanted)) > 0 or samples == 1
        assert difference(wanted[:1], frozen(x[:1])) < 5e-6
        assert difference(wanted, frozen.dense()(x)) < 5e-6
    return frozen


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(info.name, marks=pytest.mark.deep if info.name in LARGE else ())
        for info in models.list_models()
        if info.name != "tiny-net"
    ],
)
def test_registry_models(name):
    info = models.info(name)
    shape = SMALL.get(name, info.input_shape)
    model = registry_model(name, shape)
    frozen = compare(model, masks_of(model, 0.05), shape, tokens=info.num_classes if info.tokens else 0)
    assert frozen.untraced is None
    layers = [module for module in frozen.modules() if isinstance(module, FrozenLayer)]
    assert layers or not native.available()


@pytest.mark.parametrize("name", ["timm:resnet18", "timm:mobilenetv3_small_050"])
def test_timm_models(name):
    pytest.importorskip("timm", exc_type=ImportError)
    model = registry_model(name, (3, 64, 64))
    frozen = compare(model, masks_of(model, 0.05), (3, 64, 64))
    assert frozen.untraced is None
    assert not [m for m in frozen.modules() if isinstance(m, nn.BatchNorm2d)], "all are folded"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["gpt", "bert"])
def test_transformers_models(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = pytest.importorskip("transformers", exc_type=ImportError)
    sizes = {
        "vocab_size": 30,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
    }
    if kind == "gpt":
        model = transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**sizes, max_position_embeddings=32))
    else:
        model = transformers.BertForMaskedLM(transformers.BertConfig(**sizes, max_position_embeddings=32))
    model.eval()
    masks = masks_of(model, 0.2)
    masked(model, masks)
    frozen = freeze(model, masks)
    tokens = torch.randint(30, (3, 12))
    with torch.no_grad():
        assert difference(model(tokens).logits, frozen(tokens).logits) < 5e-6
    assert any(isinstance(module, FrozenLayer) for module in frozen.modules()) or not native.available()
    if frozen.untraced is not None:
        with pytest.raises(StateError, match="could not be traced"):
            frozen.dense()


def trained_handle(execution="masked"):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2), nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 4),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    handle = regrow.sparsify(model, optimizer, density=0.2, steps=20, update_every=4, execution=execution)
    for _ in range(8):
        optimizer.zero_grad()
        functional.cross_entropy(model(torch.randn(16, 2, 6, 6)), torch.randint(4, (16,))).backward()
        optimizer.step()
    return handle, optimizer


@pytest.mark.parametrize("execution", ["masked", pytest.param("sparse", marks=needs_kernels)])
def test_handle_freezes_without_touching_training(execution):
    handle, optimizer = trained_handle(execution)
    x = torch.randn(5, 2, 6, 6)
    before = copy.deepcopy(handle.model.state_dict())
    frozen = handle.freeze(x[:1])
    assert handle.model.training
    with torch.no_grad():
        assert difference(handle.model.eval()(x), frozen(x)) < 5e-6
    assert all(torch.equal(before[name], tensor) for name, tensor in handle.model.state_dict().items())
    assert not [m for m in frozen.modules() if isinstance(m, nn.BatchNorm2d | nn.Dropout)]
    assert not list(frozen.parameters(recurse=True)) or not any(p.requires_grad for p in frozen.parameters())
    handle.model.train()
    optimizer.step()
    assert handle.step == 9


def test_copies_and_pickles():
    handle, _optimizer = trained_handle()
    frozen = handle.freeze(torch.zeros(1, 2, 6, 6))
    x = torch.randn(3, 2, 6, 6)
    for twin in (copy.deepcopy(frozen), pickle.loads(pickle.dumps(frozen))):
        assert torch.equal(twin(x), frozen(x))


def test_stays_in_evaluation_mode():
    handle, _optimizer = trained_handle()
    frozen = handle.freeze()
    assert not frozen.train().training
    assert not any(module.training for module in frozen.modules())


def test_concurrent_calls_agree():
    model = registry_model("lenet5", (1, 28, 28))
    masks = masks_of(model, 0.1)
    frozen = freeze(model, masks)
    inputs = [torch.randn(n % 11 + 1, 1, 28, 28) for n in range(24)]
    with torch.no_grad():
        wanted = [frozen(x) for x in inputs]
    failures = []

    def work(turn):
        with torch.no_grad():
            for k in range(len(inputs)):
                place = (k * 5 + turn) % len(inputs)
                if not torch.equal(frozen(inputs[place]), wanted[place]):
                    failures.append(place)

    threads = [threading.Thread(target=work, args=(turn,)) for turn in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


class Branching(nn.Module):
    """Its Python asks for values: torch.fx cannot follow."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        return self.layer(x) if x.sum() > 0 else -self.layer(x)


class Secret(nn.Module):
    """Asks for the type of its input, which differs while it is traced."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        return self.layer(x) + (1 if type(x) is torch.Tensor else 2)


@pytest.mark.parametrize("kind", [Branching, Secret])
def test_what_cannot_be_traced_is_frozen_module_by_module(kind):
    model = kind().eval()
    masks = masks_of(model, 0.4)
    masked(model, masks)
    x = torch.randn(4, 6)
    frozen = freeze(model, masks, x[:1])
    assert frozen.untraced
    with torch.no_grad():
        for sign in (1, -1):
            assert difference(model(sign * x), frozen(sign * x)) < 5e-6


class Twice(nn.Module):
    """One layer in two places, one of them behind a norm."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Conv2d(4, 2, 1)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.conv(x))) + self.conv(x))


def test_layer_used_twice_is_not_folded_into_both():
    model = shaken(Twice())
    masks = masks_of(model, 0.4)
    compare(model, masks, (4, 5, 5))


def test_sequences_go_through_linear_layers():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    masks = masks_of(model, 0.3)
    masked(model, masks)
    frozen = freeze(model, masks, torch.zeros(1, 3, 8))
    x = torch.randn(2, 3, 8)
    with torch.no_grad():
        assert difference(model(x), frozen(x)) < 5e-6
        assert difference(model(x[0]), frozen(x[0])) < 5e-6


def test_one_dimensional_convolutions():
    model = shaken(nn.Sequential(nn.Conv1d(3, 8, 3, padding=1), nn.BatchNorm1d(8), nn.ReLU(), nn.Conv1d(8, 4, 3)))
    compare(model, masks_of(model, 0.3), (3, 12))


def test_weights_outside_the_mask_do_not_count():
    model = nn.Linear(6, 3).eval()
    masks = masks_of(model, 0.3)
    frozen = freeze(model, masks)
    with torch.no_grad():
        wanted = functional.linear(torch.ones(2, 6), model.weight * masks["weight"], model.bias)
        assert difference(wanted, frozen(torch.ones(2, 6))) < 5e-6


def test_masks_of_another_model_are_refused():
    with pytest.raises(ConfigurationError, match=r"a mask for other\.weight"):
        freeze(nn.Linear(2, 2), {"other.weight": torch.ones(2, 2, dtype=torch.bool)})


@needs_kernels
def test_layer_says_what_it_is():
    layer = FrozenLayer(nn.Linear(10, 4), torch.rand(4, 10) < 0.5, relu=True)
    assert "of 40 weights, ReLU" in repr(layer)


@needs_kernels
def test_operator_refuses_what_does_not_fit():
    layer = FrozenLayer(nn.Linear(10, 4), torch.rand(4, 10) < 0.5)
    call = torch.ops.regrow.frozen_layer
    window = [1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1]
    x = torch.randn(2, 10)
    assert torch.allclose(call(x, layer.values, layer.where, layer.bias, [4, 10], window, False), layer(x))
    for where in (layer.where + 40, layer.where.flip(0), layer.where.long(), layer.where[1:]):
        with pytest.raises(ValueError, match="posi"):
            call(x, layer.values, where, layer.bias, [4, 10], window, False)


@needs_kernels
@pytest.mark.parametrize("samples", [2, 40])
def test_inputs_that_do_not_fit_are_refused(samples):
    """Kernels would read memory that is not there, or numbers of another type."""
    model = nn.Sequential(nn.Conv2d(8, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)).eval()
    frozen = freeze(model, masks_of(model, 0.3))
    with pytest.raises(ValueError, match="8 channels"):
        frozen(torch.randn(samples, 3, 6, 6))
    with pytest.raises(ValueError, match="144 features"):
        frozen(torch.randn(samples, 8, 5, 6))
    with pytest.raises(TypeError, match="float64"):
        frozen(torch.randn(samples, 8, 6, 6).double())
    assert frozen(torch.randn(0, 8, 6, 6)).shape == (0, 3)


def test_one_sample_without_a_batch():
    for layer, shape in ((nn.Conv2d(4, 6, 3), (4, 5, 5)), (nn.Conv1d(4, 6, 3), (4, 7)), (nn.Linear(4, 6), (4,))):
        model = nn.Sequential(layer).eval()
        masks = masks_of(model, 0.3)
        masked(model, masks)
        x = torch.randn(shape)
        with torch.no_grad():
            assert difference(model(x), freeze(model, masks)(x)) < 5e-6


class InPlace(nn.Module):
    """A result changed in place and read afterwards: by a function whose result nobody takes, by a method, by a module."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.conv, self.head, self.relu = kind, nn.Conv2d(4, 6, 3), nn.Conv2d(6, 2, 1), nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.conv(x)
        if self.kind == "function":
            functional.relu(x, inplace=True)
        elif self.kind == "method":
            x.relu_()
        else:
            return self.head(x) + self.head(self.relu(x)) + self.head(x)
        return self.head(x)


@pytest.mark.parametrize("kind", ["function", "method", "module"])
def test_changes_in_place_are_seen_by_later_readers(kind):
    model = shaken(InPlace(kind))
    masks = masks_of(model, 0.3)
    masked(model, masks)
    frozen, x = freeze(model, masks), torch.randn(3, 4, 6, 6)
    with torch.no_grad():
        assert difference(model(x), frozen(x)) < 5e-6
    assert "in place" in frozen.untraced


def test_layers_with_hooks_keep_them():
    model = shaken(nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 2, 1)))
    model[0].register_forward_hook(_doubled)
    masks = masks_of(model, 0.3)
    masked(model, masks)
    x = torch.randn(3, 4, 6, 6)
    with torch.no_grad():
        assert difference(model(x), freeze(model, masks)(x)) < 5e-6


def _doubled(module, inputs, output):
    return 2 * output


@needs_kernels
def test_operator_refuses_a_bias_of_another_type_and_a_kernel_of_another_size():
    layer = FrozenLayer(nn.Linear(10, 4), torch.rand(4, 10) < 0.5)
    call, x, numbers = torch.ops.regrow.frozen_layer, torch.randn(2, 10), [1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1]
    with pytest.raises(ValueError, match="bias do not fit"):
        call(x, layer.values, layer.where, layer.bias.double(), [4, 10], numbers, False)
    with pytest.raises(ValueError, match="does not fit weights"):
        call(x, layer.values, layer.where, layer.bias, [4, 10], [3, 3, *numbers[2:]], False)


@needs_kernels
def test_a_frozen_layer_has_no_gradient_rather_than_a_zero_one():
    layer = FrozenLayer(nn.Linear(10, 4), torch.rand(4, 10) < 0.5)
    numbers = [4, 10], [1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1], False
    y = torch.ops.regrow.frozen_layer(
        torch.ones(2, 10, requires_grad=True), layer.values, layer.where, layer.bias, *numbers
    )
    with pytest.raises(RuntimeError, match="a frozen network has no gradients"):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="functorch"):  # torch's own words
        torch.func.jacrev(layer)(torch.ones(2, 10))
    torch.testing.assert_close(torch.func.vmap(layer)(torch.ones(3, 2, 10))[0], layer(torch.ones(2, 10)))
