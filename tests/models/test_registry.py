import subprocess
import sys

import pytest
import torch
from torch import nn

from regrow import models
from regrow.models import registry

NAMES = [
    "lenet300",
    "lenet300-bn",
    "lenet5",
    "alexnet-s",
    "alexnet-b",
    "vgg16-c",
    "vgg16-c-snip",
    "vgg16-d",
    "vgg16-like",
    "wrn-28-2",
    "wrn-16-8",
    "wrn-16-10",
    "wrn-22-8",
    "wrn-22-2",
    "resnet50",
    "gpt-10m",
    "gpt2-small",
]


def test_list_models_is_complete_and_frozen():
    records = models.list_models()
    # Tests of other parts register small networks of their own behind the package's.
    assert [record.name for record in records][: len(NAMES)] == NAMES
    assert all(name.startswith("tiny") for name in (record.name for record in records[len(NAMES) :]))
    with pytest.raises(AttributeError):
        records[0].name = "other"


def test_listing_needs_no_torch():
    code = "import sys; from regrow import models; models.list_models(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("wrong", "nearest"), [("lenet-300", "lenet300"), ("WRN_28_2", "wrn-28-2"), ("vgg16d", "vgg16-d")]
)
def test_unknown_name_names_the_nearest(wrong, nearest):
    with pytest.raises(models.UnknownModelError, match=f"did you mean '{nearest}'"):
        models.create(wrong)


def test_unknown_name_without_neighbour_lists_all():
    with pytest.raises(models.UnknownModelError, match=r"unknown model 'zzzz': see .* lenet300, .* timm:NAME"):
        models.create("zzzz")


def test_unknown_option_names_the_nearest():
    with pytest.raises(ValueError, match=r"'wrn-28-2' has no option 'drop_out': did you mean 'dropout'"):
        models.create("wrn-28-2", drop_out=0.1)


def test_an_option_that_the_name_fixes_is_refused():
    with pytest.raises(ValueError, match="'alexnet-s' has no option 'hidden'"):
        models.create("alexnet-s", hidden=5)
    assert models.info("vgg16-c").options() == ("input_shape", "num_classes", "pad_1x1")


def test_seed_fixes_the_weights_and_spares_the_global_generator():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    first, again, other = (models.create("lenet5", seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(first.conv1.weight, again.conv1.weight)
    assert not torch.equal(first.conv1.weight, other.conv1.weight)


def test_without_seed_the_global_generator_is_used():
    torch.manual_seed(3)
    first = models.create("lenet300")
    torch.manual_seed(3)
    assert torch.equal(first.fc1.weight, models.create("lenet300").fc1.weight)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "resnet50" and "gpt" not in name])
def test_other_inputs_and_classes(name):
    model = models.create(name, input_shape=(2, 40, 48), num_classes=7)
    assert model.eval()(torch.zeros(1, 2, 40, 48)).shape == (1, 7)


def test_register_own_model(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))

    def tiny(input_shape=(1, 2, 2), num_classes=3):
        return nn.Sequential(nn.Flatten(), nn.Linear(4, num_classes))

    record = models.register(models.ModelInfo("tiny", (1, 2, 2), 3, "one layer", tiny))
    assert models.list_models()[-1] is record
    assert models.create("tiny", num_classes=5)(torch.zeros(1, 1, 2, 2)).shape == (1, 5)
    with pytest.raises(ValueError, match="already taken"):
        models.register(record)
    with pytest.raises(ValueError, match="already taken"):
        models.register(models.ModelInfo("timm:x", (1, 2, 2), 3, "shadowed", tiny))
