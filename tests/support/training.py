"""What the tests of whole runs share: small networks, data, a plain loop, and what must hold after every step."""

import torch
from torch import nn

import regrow
from regrow.momentum import shaped_slots


def small_net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, "momentum": 0.9, **options})


def sparse_run(seed=0, density=0.3, optimizer=sgd, **arguments):
    """A small network with its optimizer and handle."""
    model = small_net(seed)
    stepper = optimizer(model)
    return (
        model,
        stepper,
        regrow.sparsify(model, stepper, density=density, **{"steps": 40, "update_every": 4, **arguments}),
    )


def batches(count, seed=1, size=16, features=12, classes=3):
    source = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(size, features, generator=source), torch.randint(classes, (size,), generator=source))
        for _ in range(count)
    ]


def loss_of(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def train(model, optimizer, data, each=None):
    for batch in data:
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
        if each is not None:
            each()


def bits(handle):
    """The masks as one vector, to compare."""
    return torch.cat([mask.flatten() for mask in handle.masks.values()])


def assert_sparse(handle):
    """Budget exact; weights and optimizer state of missing entries exactly zero."""
    assert handle.nonzeros == handle.budget
    for sparse in handle.parameters:
        assert not (sparse.parameter.detach() * ~sparse.mask).any(), sparse.name
        for slot, tensor in shaped_slots(handle.optimizer, sparse.parameter).items():
            assert not (tensor * ~sparse.mask).any(), (sparse.name, slot)


def same_weights(a, b):
    return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
