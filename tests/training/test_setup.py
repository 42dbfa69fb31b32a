"""From a configuration to parts, and the plan without fetching data."""

import pytest
import torch

from regrow import presets
from regrow.config import override
from regrow.data import DataError
from regrow.errors import ConfigurationError
from regrow.methods import build
from regrow.published import suited
from regrow.training.density import settle_density
from regrow.training.optimisation import build_optimizer
from regrow.training.plan import plan_of
from regrow.training.processes import Processes
from regrow.training.setup import assemble, build_model, create_model, load_split, sparsify_as_configured
from tests.training import tiny


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny.write_data(tmp_path_factory.mktemp("data") / "data.npz")


def test_model_fits_the_data_and_its_memory_format(data):
    config = tiny.config(data)
    network = build_model(config, load_split(config, "train"))
    assert network[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert network[-1].out_features == 4


def test_sizes_add_up(data):
    parts = assemble(tiny.config(data), Processes())
    assert len(parts.train) + len(parts.validation) == 200
    assert len(parts.test) == 60
    assert parts.steps_per_epoch == -(-len(parts.train) // 20)
    assert parts.handle.settings.clock.steps == 4 * parts.steps_per_epoch


def test_the_same_configuration_gives_the_same_start(data):
    first, second = (assemble(tiny.config(data), Processes()) for _ in range(2))
    for a, b in zip(first.network.parameters(), second.network.parameters(), strict=True):
        assert torch.equal(a, b)
    other = assemble(tiny.config(data, seed=1), Processes())
    assert not torch.equal(first.network[0].weight, other.network[0].weight)


def test_an_epoch_is_the_default_interval(data):
    from regrow.config import Sparse

    parts = assemble(tiny.config(data, sparse=Sparse(density=0.3)), Processes())
    assert parts.handle.settings.clock.every == parts.steps_per_epoch


def test_augment_on_and_off(data):
    from dataclasses import replace

    config = tiny.config(data)
    with_crops = replace(config, data=replace(config.data, augment="on"))
    assert load_split(with_crops, "train")._augment is not None
    assert load_split(with_crops, "test")._augment is None
    assert load_split(config, "train")._augment is None


def test_options_a_model_does_not_have(data):
    config = tiny.config(data, model="lenet300", model_options={"widht": 3})
    with pytest.raises(ConfigurationError, match="no option 'widht'"):
        build_model(config, load_split(config, "train"))


@pytest.mark.parametrize(
    "changes", [{}, {"method": "snip"}, {"method": "srigl"}, {"scope": "partially-dense"}, {"option.cost_power": "1"}]
)
@pytest.mark.parametrize("preset", ["mnist-lenet5", "cifar-alexnet-s"])
def test_plan_fetches_nothing(preset, changes, tmp_path, monkeypatch):
    monkeypatch.setenv("REGROW_CACHE", str(tmp_path / "empty"))
    monkeypatch.setattr("regrow.data.fetch._candidates", lambda *arguments: pytest.fail("asked for a source"))
    config = override(presets.find(preset), changes)
    plan = plan_of(config)
    assert sum(row.nonzeros for row in plan if row.sparse) > 0


def shapes(rows):
    return [(row.layer, row.shape) for row in rows if len(row.shape) > 1]


def test_plan_shows_the_network_that_training_builds(data):
    config = tiny.config(data, model="lenet300")
    trained = assemble(config, Processes()).handle.plan()
    assert shapes(plan_of(config)) == shapes(trained) == [("fc1", (300, 144)), ("fc2", (100, 300)), ("fc3", (4, 100))]


def test_plan_of_an_image_folder(tmp_path):
    for name in ("ant", "bee"):
        (tmp_path / "train" / name).mkdir(parents=True)
    at = {"data.root": str(tmp_path), "data.image_size": "64"}
    config = override(presets.find("imagenet-resnet50"), at)
    assert shapes(plan_of(config))[-1] == ("fc", (2, 2048))
    config = override(presets.find("demo"), {**at, "data.name": "imagenet"})
    assert shapes(plan_of(config))[0] == ("fc1", (300, 3 * 64 * 64))


def test_plan_of_data_that_are_not_there(tmp_path):
    for changes in ({"data.name": "mnits"}, {"data.name": "imagenet", "data.root": str(tmp_path / "nowhere")}):
        with pytest.raises(DataError, match=r"did you mean 'mnist'|nowhere/train: no such folder"):
            plan_of(override(presets.find("demo"), changes))


@pytest.mark.parametrize(
    ("method", "title"),
    [
        ("snip", "snip (static masks stand in: its own need data): 5.00%"),
        ("lottery-ticket", "lottery-ticket (static masks stand in: its own come from rounds of training): 5.00%"),
        ("rigl", "rigl: 5.00%"),
    ],
)
def test_plan_says_where_static_masks_stand_in(method, title):
    assert title in " ".join(str(plan_of(override(presets.find("demo"), {"method": method}))).split())


COMPRESSION = (
    "obd", "l-obs", "dns", "variational-dropout", "l0", "soft-weight-sharing", "lc", "nest", "targeted-dropout", "bayesian-compression",
    "movement", "str",
)  # fmt: skip


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("method", COMPRESSION)
def test_compression_methods_fit_into_few_epochs(method, epochs):
    """`regrow train mnist-lenet300 --method NAME --epochs N` begins, and its schedule arrives."""
    config = override(presets.find("mnist-lenet300"), {"sparse.method": method, "epochs": str(epochs)})
    config = settle_density(suited(config, ())[0], given=False)
    network = create_model(config, {})
    handle = sparsify_as_configured(
        config, build(method, {}), network, build_optimizer(network, config), 540, calibration=list, samples=54_000
    )
    clock = handle.settings.clock
    last = clock.progress(clock.last_due())
    assert handle.settings.density_at(last) == pytest.approx(config.sparse.density)
