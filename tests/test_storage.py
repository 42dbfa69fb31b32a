"""What cannot be stored compact is refused before anything changes."""

import copy

import pytest
import torch
from torch import nn

import regrow
from regrow.errors import ConfigurationError, UnsupportedError
from regrow.methods import build
from tests.support.compact import WITH_DENSE_PARTS, Run, network


@pytest.mark.parametrize("method", sorted(WITH_DENSE_PARTS))
def test_methods_with_dense_parts_are_refused_by_name(method):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    density = None if build(method, {}).free_of_density else 0.2
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(UnsupportedError, match=f"method '{method}' .*leave storage at 'dense'"):
        regrow.sparsify(
            model,
            optimizer,
            method,
            density=density,
            steps=10,
            execution="sparse",
            storage="compact",
            samples=9,
            calibration=[],
        )
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"execution": "masked"}, "execution='sparse'"),
        ({"execution": "auto"}, "execution='sparse'"),
        ({"storage": "sparse"}, "compact, dense"),
        ({"costs": "measured"}, "costs=<example input>"),
        ({"redistribute": lambda layer: 1.0}, "per_weight"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else str(value),
)
def test_what_cannot_be_compact_is_refused_with_the_remedy(arguments, said):
    with pytest.raises((ConfigurationError, UnsupportedError), match=said):
        Run(**arguments)


def test_layers_without_kernels_are_refused_by_name():
    model = nn.Sequential(nn.Linear(4, 4), nn.Bilinear(4, 4, 2))
    model[1].forward = lambda x: x
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(UnsupportedError, match=r"layer 1 cannot be stored compact.*scope=Scope\(dense=\('1',\)\)"):
        regrow.sparsify(model, optimizer, "static", density=0.5, execution="sparse", storage="compact")
