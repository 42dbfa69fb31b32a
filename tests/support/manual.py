"""A sparsified stack of matrices whose weights, masks and gradients are given by hand; no forward pass."""

from dataclasses import replace

import torch
from torch import nn

import regrow
from regrow.methods import build


class Manual:
    """``weights`` and ``masks`` are matrices; each step takes one gradient per matrix."""

    def __init__(self, method, weights, masks=None, options=None, optimizer=None, density=None, **arguments):
        weights = [torch.as_tensor(w) for w in weights]
        self.model = nn.Sequential(*(nn.Linear(w.shape[1], w.shape[0], bias=False, dtype=w.dtype) for w in weights))
        with torch.no_grad():
            for layer, weight in zip(self.model, weights, strict=True):
                layer.weight.copy_(weight)
        recipe = build(method, options or {})
        if masks is not None:
            masks = [torch.as_tensor(m, dtype=torch.bool) for m in masks]
            recipe = replace(recipe, initial=lambda setup: [m.clone() for m in masks])
            if density is None and recipe.fixed_counts is None:
                density = sum(int(m.count_nonzero()) for m in masks) / sum(m.numel() for m in masks)
        make = optimizer or (lambda p: torch.optim.SGD(p, lr=0.0, momentum=0.9))
        self.optimizer = make(list(self.model.parameters()))
        arguments = {"steps": 100, "update_every": 1, **arguments}
        self.handle = regrow.sparsify(self.model, self.optimizer, recipe, density=density, **arguments)

    def step(self, *gradients):
        """One optimizer step with these gradients (ones where none is given)."""
        for index, layer in enumerate(self.model):
            given = torch.as_tensor(gradients[index]) if gradients else torch.ones_like(layer.weight)
            layer.weight.grad = given.to(layer.weight.dtype).expand_as(layer.weight).clone()
        self.optimizer.step()
        return self

    @property
    def weights(self):
        return [layer.weight.detach().clone() for layer in self.model]

    @property
    def masks(self):
        return [mask.clone() for mask in self.handle.masks.values()]

    @property
    def counts(self):
        return [int(mask.count_nonzero()) for mask in self.handle.masks.values()]

    def slot(self, name, index=0):
        return self.optimizer.state[self.model[index].weight][name]
