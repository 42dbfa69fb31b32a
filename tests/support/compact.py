"""Short runs that store present weights only, beside those with dense storage."""

import torch
from torch import Tensor, nn

import regrow
from regrow.methods import METHODS
from regrow.storage import _dense_need

STEPS = 12
OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "plain SGD": lambda p: torch.optim.SGD(p, lr=0.1, maximize=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-2, amsgrad=True, weight_decay=1e-3),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "AdamW, each alone": lambda p: torch.optim.AdamW(p, lr=torch.tensor(1e-2), foreach=False, maximize=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.5, centered=True, weight_decay=1e-3),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2, lr_decay=0.1, initial_accumulator_value=0.1),
    "Rprop": lambda p: torch.optim.Rprop(p, lr=1e-3),
}
WITH_DENSE_PARTS = {name for name, make in METHODS.items() if _dense_need(make()) is not None}


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = (
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 12, 3, stride=2, groups=2),
        nn.ReLU(),
        nn.Flatten(),
    )
    return nn.Sequential(*layers, nn.Linear(108, 40), nn.ReLU(), nn.Linear(40, 10))


def batch(step: int) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(step)
    return torch.randn(6, 3, 8, 8, generator=source), torch.randint(0, 10, (6,), generator=source)


class Run:
    def __init__(self, storage="compact", method="sparse-momentum", optimizer="SGD", density=0.2, **arguments):
        self.model = network()
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        calibrations = {"loss": lambda: self.loss(0), "input": batch(0)[0], "batches": [batch(0)], None: None}
        arguments = {"steps": STEPS, "update_every": 3, "execution": "sparse", **arguments}
        kind = METHODS[method]()
        self.handle = regrow.sparsify(
            self.model,
            self.optimizer,
            method,
            density=density,
            storage=storage,
            calibration=calibrations[kind.calibration],
            **arguments,
        )

    def loss(self, step):
        inputs, targets = batch(step)
        return nn.functional.cross_entropy(self.model(inputs), targets)

    def step(self):
        self.optimizer.zero_grad()
        self.loss(self.handle.step).backward()
        self.optimizer.step()

    def run(self, steps=STEPS):
        while self.handle.step < steps:
            self.step()
        return self

    def tensors(self):
        """Weights, masks, gradients and optimizer state, those of present weights in both storages."""
        found = {f"model.{name}": tensor.clone() for name, tensor in self.model.state_dict().items()}
        found |= {f"mask.{name}": mask.clone() for name, mask in self.handle.masks.items()}
        owners = {sparse.parameter: sparse for sparse in self.handle.parameters}
        for index, parameter in enumerate(self.model.parameters()):
            slots = {"grad": parameter.grad, **self.optimizer.state.get(parameter, {})}
            for name, slot in slots.items():
                if isinstance(slot, Tensor):
                    dense = parameter in owners and slot.dim() and slot.shape == owners[parameter].shape
                    present = slot.reshape(-1)[owners[parameter].support.positions.long()] if dense else slot
                    found[f"{index}.{name}"] = present.clone()
        return found


def assert_same(one: Run, two: Run) -> None:
    a, b = one.tensors(), two.tensors()
    assert a.keys() == b.keys()
    assert not [name for name in a if not torch.equal(a[name], b[name])]
    assert one.handle.journal == two.handle.journal
