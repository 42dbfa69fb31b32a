"""Layer views made by hand, for tests of the pure pieces."""

import torch

from regrow import randomness
from regrow.topology.view import LayerView, Update


class Known:
    """Evidence given in advance."""

    def __init__(self, momentum=None, gradient=None, second=None):
        self._momentum, self._gradient, self._second = momentum, gradient, second

    def gradient(self):
        return self._gradient

    def momentum(self):
        return self._momentum

    def second_moment(self):
        return self._second


def view(weight, mask=None, momentum=None, gradient=None, index=0, seed=0, **rest):
    """A layer; the mask defaults to the non-zeros of the weight."""
    weight = torch.as_tensor(weight)
    mask = weight != 0 if mask is None else torch.as_tensor(mask, dtype=torch.bool)
    evidence = Known(
        None if momentum is None else torch.as_tensor(momentum), None if gradient is None else torch.as_tensor(gradient)
    )
    return LayerView(
        name=rest.pop("name", f"layer{index}"), index=index, place=rest.pop("place", index), weight=weight, mask=mask,
        evidence=evidence, rng=lambda *key: randomness.generator(seed, 0, *key), **rest,
    )  # fmt: skip


def update(*layers, rate=0.0, **rest):
    """An update of layers, numbered in order."""
    for place, layer in enumerate(layers):
        layer.index = layer.place = place
    return Update(list(layers), rate=rate, **rest)


def bits(text):
    """A mask from a string of 0 and 1."""
    return torch.tensor([c == "1" for c in text])
