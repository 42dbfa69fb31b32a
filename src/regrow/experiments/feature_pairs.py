"""Feature analysis of finished runs: a dense and a sparse network of one model and seed."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from regrow.analysis.feature_figures import draw_specialisation
from regrow.analysis.features import BINS, Comparison, activity, compare, histogram, specialisations
from regrow.experiments.experiment import Cell
from regrow.experiments.grid import Job
from regrow.experiments.sweep import is_finished
from regrow.files import write_atomically
from regrow.training.setup import load_split
from regrow.training.stored import load_model


def finished_pairs(cells: Sequence[Cell], seeds: Sequence[int], folder: Path) -> Iterator[tuple[str, int, Path, Path]]:
    """Model, seed and the folders of the dense and the sparse run, where both are finished."""
    for thin in cells:
        if thin.label == "dense":
            continue
        for dense in cells:
            if dense.label != "dense" or dense.model != thin.model:
                continue
            for pair in zip(dense.jobs(seeds), thin.jobs(seeds), strict=True):
                if all(is_finished(job, folder) for job in pair):
                    yield thin.model, pair[0].config.seed, _home(folder, pair[0]), _home(folder, pair[1])


def analyse_pair(model: str, seed: int, dense: Path, sparse: Path, results: Path) -> Comparison:
    """Compare two finished runs; histograms as CSV, SVG and PNG."""
    found = [run_specialisation(folder) for folder in (dense, sparse)]
    name = results / f"specialisation-{model}-s{seed}"
    write_atomically(name.with_name(name.name + ".csv"), _histograms(*found).encode())
    draw_specialisation(found[0], found[1], f"class specialisation of channels: {model}, seed {seed}", name)
    return compare(found[0], found[1])


def run_specialisation(folder: Path) -> dict[str, np.ndarray]:
    """S per layer of a finished run, over its whole training split as training saw it, augmentation included."""
    _, config, network = load_model(folder)
    train = load_split(config, config.data.train_split)
    batches = train.batches(0, config.data.eval_batch, config.seed)
    return specialisations(activity(network, batches, train.num_classes))


def _histograms(dense: dict[str, np.ndarray], sparse: dict[str, np.ndarray]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("layer", "from", "to", "dense", "sparse"))
    for layer in dense:
        counts = zip(BINS[:-1], BINS[1:], histogram(dense[layer]), histogram(sparse[layer]), strict=True)
        writer.writerows((layer, f"{low:.4f}", f"{high:.4f}", a, b) for low, high, a, b in counts)
    return text.getvalue()


def _home(folder: Path, job: Job) -> Path:
    return folder / job.key
