"""Probes of what is no setting: runs of LeNet-300-100 at 1.5% weights, trained in this process with one function replaced.

    python results/probes/patched.py same-order --seeds 4

Finished runs are not repeated; their rows are added to `results/probes/PATCH.csv`, with the patch in the column `other`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch

from regrow.cli.main import main as regrow
from regrow.config import override
from regrow.data import draws
from regrow.data.epoch import Epoch
from regrow.experiments.grid import parse_seeds
from regrow.experiments.rows import add_runs, ending_of, row_of
from regrow.presets import PRESETS
from regrow.topology import select

HOME = Path(__file__).parent
LETTER = {"option.grown_momentum": "keep", "option.warmup": "0", "window_tolerance": "0.001"}
PRESET, OPTIONS = "mnist-lenet300", {"density": "0.015", "execution": "sparse", "threads": "1", **LETTER}


def same_order() -> None:
    """One random order per run, which every epoch repeats."""

    def order(epoch: Epoch) -> np.ndarray:
        return (
            draws.permutation(epoch.samples, epoch.seed, draws.ORDER, 0) if epoch.shuffle else np.arange(epoch.samples)
        )

    Epoch.order = order


def last_ties() -> None:
    """Equal scores go to the highest index instead of the lowest."""
    lowest = select._top

    def highest(values: torch.Tensor, count: int) -> torch.Tensor:
        return values.numel() - 1 - lowest(values.flip(0), count)

    select._top = highest


PATCHES = {"same-order": same_order, "last-ties": last_ties}


def main() -> int:
    """Train the seeds that have not ended, and write their rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patch", choices=PATCHES)
    parser.add_argument("--seeds", type=parse_seeds, default=parse_seeds("4"))
    parser.add_argument("--out", type=Path, default=Path("runs/probes"))
    chosen = parser.parse_args()
    PATCHES[chosen.patch]()
    for seed in chosen.seeds:
        options, folder = OPTIONS | {"seed": str(seed)}, chosen.out / f"{chosen.patch}-{seed}"
        config = override(PRESETS[PRESET], options)
        flags = [word for key, value in options.items() for word in (f"--{key}", value)]
        code = 0 if ending_of(config, folder) else regrow(["train", PRESET, *flags, "--out", str(folder)])
        if not ending_of(config, folder):
            return code  # stopped; a run that diverged has ended
        other = json.dumps({"patch": chosen.patch})
        add_runs(HOME / f"{chosen.patch}.csv", [row_of(config, folder) | {"other": other}])
    return 0


if __name__ == "__main__":
    sys.exit(main())
