"""From a configuration to parts, and the plan without data."""

import pytest
import torch

from regrow import presets
from regrow.config import override
from regrow.errors import ConfigurationError
from regrow.training.plan import plan_of
from regrow.training.processes import Processes
from regrow.training.setup import assemble, build_model, load_split
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
def test_plan_needs_no_data(changes):
    config = override(presets.find("mnist-lenet5"), changes)
    plan = plan_of(config)
    assert sum(row.nonzeros for row in plan if row.sparse) > 0
