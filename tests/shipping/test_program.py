"""Native programs answer as the network does node by node, for any batch, from any thread, and know when not to."""

import copy
import pickle
import threading

import pytest
import torch
from torch import nn

from regrow import models, native
from regrow.shipping.freeze import freeze
from tests.support.networks_to_ship import difference, masked, masks_of, shaken

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")
SIZES = {"resnet50": (3, 64, 64)}


class Residual(nn.Module):
    """Sums of which neither, one or both sides are read elsewhere, strides, groups, a ReLU behind a pool, a norm that stays."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.left = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=2)
        self.right = nn.Conv2d(8, 8, 1)
        self.norm = nn.BatchNorm2d(8)
        self.down = nn.Conv2d(8, 12, 3, stride=2, padding=1)
        self.short = nn.Conv2d(8, 12, 1, stride=2)
        self.pool, self.mean, self.relu = nn.MaxPool2d(3, 2, padding=1), nn.AvgPool2d(2), nn.ReLU()
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(24, 9), nn.ReLU(), nn.Linear(9, 5))

    def forward(self, x):
        x = self.relu(self.first(x))
        x = self.left(x) + self.right(x) + x
        y = self.relu(self.norm(x))
        y = self.relu(self.down(y) + self.short(x))
        return self.head(self.mean(self.relu(self.pool(y))))


def ready(model, density=0.3):
    masks = masks_of(model, density)
    return masked(shaken(model), masks), masks


def has_program(frozen, x):
    return frozen.engine is not None and frozen.engine.answer(x) is not None


@pytest.mark.parametrize(
    "name", [info.name for info in models.list_models() if not info.tokens and info.name != "tiny-net"]
)
def test_registry_networks_have_programs(name):
    shape = SIZES.get(name, models.info(name).input_shape)
    model, masks = ready(models.create(name, seed=0, input_shape=shape), 0.05)
    frozen = freeze(model, masks, torch.randn(1, *shape))
    x = torch.randn(9, *shape)
    assert has_program(frozen, x)
    with torch.no_grad():
        wanted = model(x)
        assert difference(wanted, frozen(x)) < 5e-6
        assert difference(wanted[:1], frozen(x[:1])) < 5e-6


@pytest.mark.parametrize("samples", [1, 2, 3, 7, 8, 15, 16, 17, 33, 50])
@pytest.mark.parametrize("threads", [1, 3])
def test_any_batch(samples, threads):
    model, masks = ready(Residual())
    frozen, x = freeze(model, masks, torch.randn(1, 3, 13, 11)), torch.randn(samples, 3, 13, 11)
    torch.set_num_threads(threads)
    assert has_program(frozen, x)
    with torch.no_grad():
        for _ in range(2):
            assert difference(model(x), frozen(x)) < 5e-6


def test_maps_of_other_sizes_get_programs_of_their_own():
    model, masks = ready(nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 4, 2), nn.ReLU()))
    frozen = freeze(model, masks)
    for rows, cols in ((5, 7), (9, 4), (2, 40), (5, 7)):
        for samples in (2, 20):
            x = torch.randn(samples, 3, rows, cols)
            assert has_program(frozen, x)
            assert difference(model(x), frozen(x)) < 5e-6


def test_other_precisions_and_copies():
    model, masks = ready(Residual())
    frozen, x = freeze(model, masks, torch.randn(1, 3, 13, 11)), torch.randn(4, 3, 13, 11)
    with torch.no_grad():
        wanted = frozen(x)
        for twin in (copy.deepcopy(frozen), pickle.loads(pickle.dumps(frozen))):
            assert torch.equal(twin(x), wanted)
        assert has_program(frozen.double(), x.double())
        assert difference(wanted.double(), frozen(x.double())) < 5e-6
        model.double()
        assert difference(model(x.double()), frozen(x.double())) < 1e-12


def test_new_weights_are_seen():
    model, masks = ready(nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 9, 4)))
    frozen, x = freeze(model, masks), torch.randn(3, 3, 5, 5)
    before = frozen(x)
    frozen.load_state_dict({name: 2 * t if t.is_floating_point() else t for name, t in frozen.state_dict().items()})
    with torch.no_grad():
        assert torch.equal(frozen(x), frozen.program(x)) or difference(frozen.program(x), frozen(x)) < 5e-6
        assert difference(before, frozen(x)) > 0.1


def test_nan_is_not_hidden():
    model, masks = ready(nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.ReLU()), 0.9)
    frozen = freeze(model, masks)
    for samples in (1, 16):
        x = torch.randn(samples, 2, 6, 6)
        x[0, :, 2, 3] = float("nan")
        assert torch.equal(frozen(x).isnan(), model(x).isnan())
        assert frozen(x).isnan().any()


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.Softmax(1)),
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2, ceil_mode=True)),
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.AvgPool2d(2, padding=1)),
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(4, 2)),
        nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), nn.Conv2d(4, 4, 1)),
    ],
    ids=["softmax", "ceil", "padded average", "rows of pixels", "reflected"],
)
def test_what_a_program_does_not_know_runs_node_by_node(model):
    model, masks = ready(model)
    frozen, x = freeze(model, masks), torch.randn(2, 3, 6, 6)
    assert not has_program(frozen, x)
    assert difference(model(x), frozen(x)) < 5e-6


def test_dense_networks_are_left_to_torch():
    model = shaken(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3)))
    assert not has_program(freeze(model, {}), torch.randn(2, 3, 6, 6))


def test_views_and_foreign_layouts_are_read_as_they_show():
    model, masks = ready(Residual())
    frozen = freeze(model, masks)
    x = torch.randn(4, 3, 13, 11)
    shown = (
        x.to(memory_format=torch.channels_last),
        x.permute(0, 1, 3, 2).contiguous().permute(0, 1, 3, 2),
        x.expand(4, 3, 13, 11),
    )
    with torch.no_grad():
        for given in shown:
            assert torch.equal(frozen(given), frozen(x))


def test_concurrent_calls_have_memory_of_their_own():
    model, masks = ready(Residual())
    frozen = freeze(model, masks)
    inputs = [torch.randn(samples, 3, 13, 11) for samples in (1, 2, 9, 16, 33)]
    wanted, failures = [frozen(x) for x in inputs], []

    def work(turn):
        for k in range(40):
            place = (k * 3 + turn) % len(inputs)
            if not torch.equal(frozen(inputs[place]), wanted[place]):
                failures.append(place)

    threads = [threading.Thread(target=work, args=(turn,)) for turn in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
