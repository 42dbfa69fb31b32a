"""Networks by name; nothing is imported, fetched or allocated because a file says so."""

import sys

import pytest
import torch
from torch import nn

from regrow import models
from regrow.errors import ConfigurationError, StateError
from regrow.shipping.architecture import build, class_entry, fill, registry_entry


class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.layer = nn.Linear(width, 2)


class Tables(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.arange(3), persistent=False)


PATH = f"{__name__}:Net"


def test_registry_model_without_memory():
    model = build(registry_entry("vgg16-d", {"num_classes": 7}))
    assert {p.device.type for p in model.parameters()} == {"meta"}
    assert model.fc3.out_features == 7


def test_filled_network_computes_the_same():
    source = models.create("lenet5", seed=1, input_shape=(1, 28, 28)).eval()
    twin = fill(build(registry_entry("lenet5", {"input_shape": (1, 28, 28)})), source.state_dict())
    x = torch.randn(2, 1, 28, 28)
    assert torch.equal(twin(x), source(x))
    assert not twin.training
    assert not any(p.requires_grad for p in twin.parameters())


def test_class_only_with_permission():
    entry = class_entry(Net, {"width": 6})
    assert entry == {"class": PATH, "arguments": {"width": 6}}
    with pytest.raises(ConfigurationError, match=r"allow=\["):
        build(entry)
    with pytest.raises(ConfigurationError, match=r"allow=\["):
        build(entry, allow=["tests.shipping"])
    assert build(entry, allow=[PATH]).layer.in_features == 6


def test_class_that_is_not_allowed_is_not_imported():
    with pytest.raises(ConfigurationError, match="not imported"):
        build({"class": "antigravity:Net", "arguments": {}})
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        (None, "does not say which network"),
        ({"code": "print(1)"}, "not readable"),
        ({"model": "lenet300"}, "not readable"),
        ({"model": 3, "options": {}}, "not readable"),
        ({"model": "lenet300", "options": []}, "not readable"),
        ({"class": "os", "arguments": {}}, "not readable"),
        ({"model": "lenet301", "options": {}}, "did you mean 'lenet300'"),
        ({"model": "lenet300", "options": {"width": 3}}, "no option 'width'"),
        ({"model": "lenet300", "options": {"num_classes": "a"}}, "cannot be built"),
        ({"model": "timm:resnet18", "options": {"pretrained": True}}, "option 'pretrained'"),
        ({"model": "timm:resnet18", "options": {"checkpoint_path": "/etc/passwd"}}, "option 'checkpoint_path'"),
        ({"class": "os:system", "arguments": {"command": "true"}}, "not a class of networks"),
        ({"class": "no_such_module:Net", "arguments": {}}, "cannot be imported .*PYTHONPATH"),
    ],
)
def test_descriptions_that_are_refused(entry, what):
    with pytest.raises((ConfigurationError, StateError), match=what):
        build(entry, allow=["os:system", "no_such_module:Net"])


def test_a_huge_network_costs_nothing():
    model = build({"model": "lenet300", "options": {"input_shape": [1000, 10_000, 10_000]}})
    assert model.fc1.weight.numel() == 300 * 10**11
    with pytest.raises(StateError, match="has shape"):
        fill(model, models.create("lenet300").state_dict())


def test_tensors_of_another_network():
    state = models.create("lenet300").state_dict()
    with pytest.raises(StateError, match="only in the network"):
        fill(models.create("lenet300"), {name: t for name, t in state.items() if name != "fc2.bias"})
    with pytest.raises(StateError, match="only in the file"):
        fill(models.create("lenet300"), {**state, "fc9.bias": torch.ones(2)})


def test_buffers_outside_the_state_cannot_be_rebuilt():
    with pytest.raises(StateError, match="table"):
        fill(build(class_entry(Tables, {}), allow=[f"{__name__}:Tables"]), {})
    assert torch.equal(fill(Tables(), {}).table, torch.arange(3))


def test_classes_that_nobody_could_import():
    class Local(nn.Module):
        pass

    with pytest.raises(ConfigurationError, match="cannot be imported elsewhere"):
        class_entry(Local, {})
    with pytest.raises(ConfigurationError, match="plain values"):
        class_entry(Net, {"width": torch.ones(1)})
