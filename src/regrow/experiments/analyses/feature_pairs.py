"""Feature analysis of pairs of runs: the dense network and the sparse one with the same seed.

What a run's network does to the whole training set is measured once, and kept as S of every channel; tests and figures follow from that.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regrow.analysis.feature_figures import draw_specialisation
from regrow.analysis.features import BINS, Comparison, activity, compare, histogram, specialisations
from regrow.experiments.columns import read_table, write_table
from regrow.experiments.experiment import Cell
from regrow.experiments.grid import Job
from regrow.experiments.rows import Row, learned, of_setting
from regrow.experiments.sweep import is_finished
from regrow.files import write_atomically
from regrow.training.setup import load_split
from regrow.training.stored import load_model

COLUMNS = ("identity", "layer", "S")

Channels = dict[str, np.ndarray]
"""S of the channels that matter, per layer."""


@dataclass(frozen=True)
class Pair:
    """The dense and the sparse run of one model and seed, and whether both learned."""

    model: str
    seed: int
    dense: Job
    sparse: Job
    learned: bool

    @property
    def name(self) -> str:
        """How its files begin."""
        return f"specialisation-{self.model}-s{self.seed}"


def pairs(cells: Sequence[Cell], rows: Sequence[Row]) -> Iterator[Pair]:
    """The pairs of which both runs have ended."""
    for dense, thin in itertools.product(cells, cells):
        if thin.is_dense or not dense.is_dense or dense.model != thin.model:
            continue
        first, second = (_by_seed(cell, rows) for cell in (dense, thin))
        for seed in sorted(first.keys() & second.keys()):
            both = learned(first[seed]) and learned(second[seed])
            yield Pair(thin.model, seed, dense.jobs([seed])[0], thin.jobs([seed])[0], learned=both)


def _by_seed(cell: Cell, rows: Sequence[Row]) -> dict[int, Row]:
    own = of_setting(cell.config, rows)
    return {int(row["seed"]): row for row in own if row["execution"] == cell.config.sparse.execution}


def channels_of(pair: Pair, folder: Path, results: Path, measures: bool) -> tuple[Channels, Channels] | None:
    """S of the channels of both networks as kept in the results; ``measures`` says whether run folders may provide what is missing."""
    path = results / f"{pair.name}-channels.csv"
    known = _read(path)
    missing = [job for job in (pair.dense, pair.sparse) if job.config.identity() not in known]
    if missing:
        if not measures or not all(is_finished(job, folder) for job in missing):
            return None
        known |= {job.config.identity(): run_specialisation(folder / job.key) for job in missing}
        _write(path, known)
    return known[pair.dense.config.identity()], known[pair.sparse.config.identity()]


def analyse_pair(pair: Pair, dense: Channels, sparse: Channels, results: Path) -> Comparison:
    """Compare the networks of two runs; histograms as CSV, SVG and PNG."""
    write_atomically(results / f"{pair.name}.csv", _histograms(dense, sparse).encode())
    title = f"class specialisation of channels: {pair.model}, seed {pair.seed}"
    draw_specialisation(dense, sparse, title, results / pair.name)
    return compare(dense, sparse)


def _read(path: Path) -> dict[str, Channels]:
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in read_table(path, COLUMNS, "channels"):
        layer = values[row["identity"]][row["layer"]]
        layer += [float(row["S"])] if row["S"] else []
    return {run: {layer: np.array(of) for layer, of in layers.items()} for run, layers in values.items()}


def _write(path: Path, found: dict[str, Channels]) -> None:
    """One row per channel; a layer without any has one that is empty."""
    layers = [(run, layer, of) for run, channels in found.items() for layer, of in channels.items()]
    rows = [dict(zip(COLUMNS, (run, layer, s), strict=True)) for run, layer, of in layers for s in of.tolist() or [""]]
    write_table(path, COLUMNS, rows)


def run_specialisation(folder: Path) -> Channels:
    """S per layer of a finished run, over its whole training split as training saw it, augmentation included."""
    stored = load_model(folder)
    config = stored.config
    train = load_split(config, config.data.train_split)
    batches = train.batches(0, config.data.eval_batch, config.seed)
    return specialisations(activity(stored.network, batches, train.num_classes))


def _histograms(dense: Channels, sparse: Channels) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("layer", "from", "to", "dense", "sparse"))
    for layer in dense:
        counts = zip(BINS[:-1], BINS[1:], histogram(dense[layer]), histogram(sparse[layer]), strict=True)
        writer.writerows((layer, f"{low:.4f}", f"{high:.4f}", a, b) for low, high, a, b in counts)
    return text.getvalue()
