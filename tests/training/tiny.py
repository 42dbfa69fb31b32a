"""Small runs for tests: data, a network with everything that has a state, configurations, and what a run leaves behind."""

import hashlib
import json
from pathlib import Path

import numpy as np
from torch import nn

from regrow import models
from regrow.config import Config, Data, Optimizer, Schedule, Sparse

FINAL_FILES = ("metrics.jsonl", "metrics.csv", "topology.jsonl", "result.json", "config.toml")
ALL_FILES = {*FINAL_FILES, "speed.jsonl", "environment.json"}


def tiny_net(input_shape=(1, 12, 12), num_classes=4):
    """Convolutions, batch norm, dropout and linear layers: weights in two memory formats, buffers, randomness."""
    channels, height, width = input_shape
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(8 * (height // 4) * (width // 4), 16),
        nn.ReLU(),
        nn.Linear(16, num_classes),
    )


if "tiny-net" not in {info.name for info in models.list_models()}:
    models.register(models.ModelInfo("tiny-net", (1, 12, 12), 4, "a network for tests", tiny_net))


def write_data(path: Path, train: int = 200, test: int = 60) -> Path:
    """An ``.npz`` with four kinds of striped pictures in noise."""
    rng = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", train), ("test", test)):
        labels = rng.integers(0, 4, count)
        stripes = np.arange(12)[None, :] % (labels[:, None] + 2) == 0
        images = rng.integers(0, 120, (count, 12, 12)) + 100 * stripes[:, :, None]
        arrays |= {f"x_{part}": images.astype(np.uint8), f"y_{part}": labels}
    np.savez(path, **arrays)
    return path


def config(data: Path, **changes) -> Config:
    """Nine steps an epoch, four epochs, a checkpoint after every step."""
    settings = {
        "model": "tiny-net",
        "epochs": 4,
        "threads": 1,
        "log_every": 4,
        "checkpoint_seconds": 0.0,
        "data": Data(str(data), batch=20, eval_batch=32),
        "optimizer": Optimizer(lr=0.05),
        "schedule": Schedule("cosine"),
        "sparse": Sparse(density=0.3, update_every=5, window_tolerance=0.5),
    }
    return Config(**{**settings, **changes})


CASES = {
    "sparse-momentum": {},
    "rigl": {"sparse": Sparse("rigl", 0.3, update_every=4)},
    "top-kast": {"sparse": Sparse("top-kast", 0.3, update_every=3), "optimizer": Optimizer("adam", 0.01)},
    "whole-momentum": {"sparse": Sparse(density=0.2, update_every=7, window_tolerance=0.0)},
    "dsr": {"sparse": Sparse("dsr", 0.3, update_every=3), "optimizer": Optimizer("adamw", 0.01)},
    "gradual-pruning": {"sparse": Sparse("gradual-pruning", 0.3, update_every=2), "max_steps": 31},
    "linear": {"model": "lenet300", "sparse": Sparse(density=0.1), "label_smoothing": 0.1, "precision": "bf16"},
}


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of everything that must not depend on interruptions: results, and the newest checkpoint's tensors and numbers."""
    newest = max((folder / "checkpoints").glob("step-*"))
    paths = [folder / name for name in FINAL_FILES]
    paths += [newest / name for name in ("tensors.safetensors", "state.json")]
    return {str(path.relative_to(folder)): hashlib.sha256(_content(path)).hexdigest() for path in paths}


def _content(path: Path) -> bytes:
    """A file's bytes, without the one number of the result that depends on the clock, and the hash over it."""
    if path.name != "result.json":
        return path.read_bytes()
    result = json.loads(path.read_text())
    del result["images_per_second"], result["sha256"]
    return json.dumps(result).encode()


def leftovers(folder: Path) -> list[str]:
    """Files of a finished run's folder that do not belong there."""
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    kept = [str(path.relative_to(folder)) for path in sorted((folder / "checkpoints").glob("step-*"))[-2:]]
    wanted = ALL_FILES | {f"{k}/{n}" for k in kept for n in ("tensors.safetensors", "state.json", "manifest.json")}
    return sorted(found ^ wanted)
