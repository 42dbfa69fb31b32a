"""Which weights grow if a window looks at candidates alone (window_candidates), what that saves, and what it does to the error.

    python results/growth-window/candidates.py --seeds 5 --epochs 5      # rows in candidates.csv, table in candidates.md

LeNet-300-100 on MNIST, 5% of the weights, compact storage. Overlap: in the run with all missing weights, candidates are chosen at the
first step of each window as a run with candidates would; of the weights that the update grows where none was, the share that is among
them (momentum of candidates is the same number in both, so these are the ones that it would grow too). Error and bytes: one run each.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from regrow.analysis.statistics import student_interval, summarise
from regrow.candidates import expected_growth, largest_missing
from regrow.config import override
from regrow.execution.kernels.pattern import Plans
from regrow.experiments.columns import read_table, write_table
from regrow.experiments.grid import parse_seeds
from regrow.experiments.tables import markdown, with_se
from regrow.marks import among
from regrow.presets import PRESETS
from regrow.training.run import Run
from regrow.window import GrowthWindow

HOME = Path(__file__).parent
COUNTS = (1.0, 2.0, 4.0, 8.0)
COLUMNS = ("seed", "epochs", "candidates", "overlap", "error", "bytes")


class Watch:
    """Bytes that a window keeps; what candidates chosen by its first gradient would have missed."""

    def __init__(self) -> None:
        self.bytes, self.before = 0, []  # type: ignore[var-annotated]
        self.found: dict[float, list[Tensor]] = {}
        self.overlaps: dict[float, list[float]] = {count: [] for count in COUNTS}

    def opened(self, window: GrowthWindow) -> None:
        """Choose candidates, now that the first gradient of the window has come."""
        assert window._next_due is not None
        growth = expected_growth(window.network, window._next_due)
        for share in COUNTS:
            self.found[share] = [
                largest_missing(s.moments.last, s.support, s.moments.bands, round(share * growth[s.name]))[0]  # type: ignore[attr-defined]
                for s in window.parameters
            ]
        self.before = [sparse.support.positions for sparse in window.parameters]

    def updated(self, run: Run) -> None:
        """Compare with what grew."""
        if not self.found:
            return
        after = [sparse.support.positions for sparse in run.parts.handle.parameters]
        born = [now[~among(was, now)] for was, now in zip(self.before, after, strict=True)]
        for share, found in self.found.items():
            both = sum(int(among(mine, new).sum()) for mine, new in zip(found, born, strict=True))
            self.overlaps[share].append(both / max(1, sum(map(len, born))))

    def stepped(self, run: Run) -> None:
        """Note what windows keep at most: momentum, positions, and the kernels' lists of these."""
        total = 0
        for sparse in run.parts.handle.parameters:
            moments = sparse.moments
            total += sum(moment.nbytes for moment in (moments.first, moments.second) if moment is not None)
            if (reach := getattr(moments, "reach", None)) is not None:
                total += reach.nbytes + reach.derive(Plans, Plans).nbytes
        self.bytes = max(self.bytes, total)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def train(seed: int, epochs: int, candidates: float) -> tuple[Watch, float]:
    """One run: what was seen of its windows, and its test error in percent."""
    given = {"storage": "compact", "execution": "sparse", "threads": "1", "window_candidates": str(candidates)}
    config = replace(override(PRESETS["mnist-lenet300"], given), seed=seed, epochs=epochs, evaluate_every=100)
    watch = Watch()
    with tempfile.TemporaryDirectory() as folder:
        run = Run(config, Path(folder), view=watch)  # type: ignore[arg-type]
        if not candidates:
            _tell(run.parts.handle.window, watch)
        result = run.train()
    assert result is not None
    return watch, result["test_error"]


def _tell(window: GrowthWindow, watch: Watch) -> None:
    collect = window.collect

    def collected(optimizer: Any) -> None:
        fresh = window.parameters[0].moments.first is None
        collect(optimizer)
        if fresh:
            watch.opened(window)

    window.collect = collected  # type: ignore[method-assign]


def measure(seed: int, epochs: int) -> list[dict[str, Any]]:
    """Rows of one seed."""
    watch, error = train(seed, epochs, 0.0)
    same = {"seed": seed, "epochs": epochs}
    rows = [{**same, "candidates": 0.0, "overlap": 1.0, "error": error, "bytes": watch.bytes}]
    for share in COUNTS:
        own, error = train(seed, epochs, share)
        overlap = sum(watch.overlaps[share]) / len(watch.overlaps[share])
        rows.append({**same, "candidates": share, "overlap": overlap, "error": error, "bytes": own.bytes})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """One line for each number of candidates, over seeds."""
    plain = [{name: float(row[name]) for name in COLUMNS} for row in rows]
    exact = {row["seed"]: row for row in plain if not row["candidates"]}
    lines = []
    for share in dict.fromkeys(row["candidates"] for row in plain):
        own = [row for row in plain if row["candidates"] == share]
        overlap, error = summarise([100 * row["overlap"] for row in own]), summarise([row["error"] for row in own])
        pairs = [row["error"] - exact[row["seed"]]["error"] for row in own]
        low, high = student_interval(pairs) if len(pairs) > 1 else (float("nan"),) * 2
        size = max(row["bytes"] for row in own) / max(row["bytes"] for row in exact.values())
        difference = f"{with_se(summarise(pairs).mean, summarise(pairs).se, '+.3f')} ({low:+.2f} .. {high:+.2f})"
        found = f"{overlap.mean:.1f} ± {overlap.se or 0:.1f}"
        lines.append(
            ("all missing weights (0)", "100", with_se(error.mean, error.se, ".3f"), "", "100")
            if not share
            else (f"{share:g}", found, with_se(error.mean, error.se, ".3f"), difference, f"{100 * size:.0f}")
        )
    epochs, seeds = f"{plain[0]['epochs']:g}", len(exact)
    head = (
        f"LeNet-300-100 on MNIST, 5%, {epochs} epochs, {seeds} seeds, ± SE. Overlap: of the weights that all missing ones would let grow. "
        "Difference: of test errors, paired by seed, with Student's 95% interval. Bytes: the most that windows keep.\n\n"
    )
    header = ("window_candidates", "overlap of grown weights %", "test error %", "difference in points", "bytes %")
    return head + markdown(header, lines)


def main() -> int:
    """Measure what is missing, write rows and table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=parse_seeds, default=parse_seeds("5"))
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--results", type=Path, default=HOME)
    chosen = parser.parse_args()
    path = chosen.results / "candidates.csv"
    rows: list[dict[str, Any]] = list(read_table(path, COLUMNS, "candidates"))
    for seed in chosen.seeds:
        if not any((int(r["seed"]), int(r["epochs"])) == (seed, chosen.epochs) for r in rows):
            rows += measure(seed, chosen.epochs)
            write_table(path, COLUMNS, rows)
    rows = [row for row in rows if int(row["epochs"]) == chosen.epochs]
    (chosen.results / "candidates.md").write_text(table(rows))
    print(table(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
