"""Feature analysis of finished runs: a dense and a sparse network of one model and seed."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regrow.analysis.feature_figures import draw_specialisation
from regrow.analysis.features import BINS, Comparison, activity, compare, histogram, specialisations
from regrow.experiments.experiment import Cell
from regrow.experiments.rows import learned, row_of
from regrow.experiments.sweep import is_finished
from regrow.files import write_atomically
from regrow.training.setup import load_split
from regrow.training.stored import load_model


@dataclass(frozen=True)
class Pair:
    """Folders of the dense and the sparse run of one model and seed, and whether both learned."""

    model: str
    seed: int
    dense: Path
    sparse: Path
    learned: bool


def finished_pairs(cells: Sequence[Cell], seeds: Sequence[int], folder: Path) -> Iterator[Pair]:
    """The pairs of which both runs are finished."""
    for thin, dense in itertools.product(cells, cells):
        if thin.is_dense or not dense.is_dense or dense.model != thin.model:
            continue
        for jobs in zip(dense.jobs(seeds), thin.jobs(seeds), strict=True):
            if all(is_finished(job, folder) for job in jobs):
                homes = [folder / job.key for job in jobs]
                both = all(learned(row_of(job.config, home)) for job, home in zip(jobs, homes, strict=True))
                yield Pair(thin.model, jobs[0].config.seed, *homes, learned=both)


def analyse_pair(pair: Pair, results: Path) -> Comparison:
    """Compare two finished runs; histograms as CSV, SVG and PNG."""
    found = [run_specialisation(folder) for folder in (pair.dense, pair.sparse)]
    name = results / f"specialisation-{pair.model}-s{pair.seed}"
    write_atomically(name.with_name(name.name + ".csv"), _histograms(*found).encode())
    draw_specialisation(*found, f"class specialisation of channels: {pair.model}, seed {pair.seed}", name)
    return compare(*found)


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
