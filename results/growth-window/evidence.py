"""Which missing weights would grow by cheaper evidence? Overlap with those that momentum of every step chooses, at real updates.

    python results/growth-window/evidence.py --model lenet300 --seeds 10      # rows in evidence.csv, table in evidence.md

One run per seed, with momentum collected in every step, ended at its second topology update. In the 66 steps before an update the
gradients of all weights are kept, of whole batches and of their halves. Momentum is then put together from a part of them, and as many
weights as the update grew in each layer are chosen among those missing before it.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regrow.analysis.statistics import summarise
from regrow.config import override
from regrow.experiments.columns import read_table, write_table
from regrow.experiments.grid import parse_seeds
from regrow.experiments.tables import markdown
from regrow.presets import PRESETS
from regrow.training.run import Run

HOME = Path(__file__).parent
PRESET = {"lenet300": "mnist-lenet300", "alexnet-s": "cifar-alexnet-s"}
MU, WHOLE = 0.9, 66
# Kind -> (steps of the window, every how many of them, half of each batch)
KINDS: dict[str, tuple[int, int, bool]] = {
    "44 steps": (44, 1, False),
    "22 steps": (22, 1, False),
    "11 steps": (11, 1, False),
    "66 steps, every 3rd": (66, 3, False),
    "66 steps, every 4th": (66, 4, False),
    "22 steps, half of the batch": (22, 1, True),
    "66 steps, half of the batch": (66, 1, True),
    "the last step (RigL)": (1, 1, False),
}
COLUMNS = ("model", "seed", "update", "kind", "gradients", "overlap", "grown")


class Watch:
    """Keeps gradients of the last steps, compares kinds of evidence at each update, ends the run at the second."""

    def __init__(self) -> None:
        self.kept: deque[list[Tensor]] = deque(maxlen=WHOLE)
        self.halves: deque[list[Tensor]] = deque(maxlen=WHOLE)
        self.rows: list[dict[str, Any]] = []
        self.before: list[Tensor] = []

    def stepped(self, run: Run) -> None:
        """Keep the masks, for the update that may come next."""
        parameters = run.parts.handle.parameters
        if run.parts.handle.updates == len(self.rows) // len(KINDS):
            self.before = [sparse.mask.clone() for sparse in parameters]

    def updated(self, run: Run) -> None:
        """Compare what each kind of evidence would have grown."""
        after = [sparse.mask for sparse in run.parts.handle.parameters]
        counts = [int((mask & ~was).sum()) for mask, was in zip(after, self.before, strict=True)]
        reference = self._choice(counts, WHOLE, 1, False)
        number = run.parts.handle.updates
        for kind, (steps, stride, half) in KINDS.items():
            found = self._choice(counts, steps, stride, half)
            both = sum(int((a & b).sum()) for a, b in zip(reference, found, strict=True))
            self.rows.append(
                {"update": number, "kind": kind, "gradients": -(-steps // stride) * (0.5 if half else 1),
                 "overlap": both / sum(counts), "grown": sum(counts)}
            )  # fmt: skip
        self.before = [mask.clone() for mask in after]
        run.stop_requested = number == 2

    def _choice(self, counts: list[int], steps: int, stride: int, half: bool) -> list[Tensor]:
        """Marks of the weights with the largest momentum among those missing before the update."""
        source = list(self.halves if half else self.kept)[::-1][:steps:stride]
        marks = []
        for layer, (count, was) in enumerate(zip(counts, self.before, strict=True)):
            momentum = sum(MU ** (stride * k) * gradients[layer] for k, gradients in enumerate(source))
            scores = momentum.abs().masked_fill(was, -1.0).view(-1)  # type: ignore[union-attr]
            mark = torch.zeros(scores.numel(), dtype=torch.bool)
            mark[scores.topk(count).indices] = True
            marks.append(mark.view(was.shape))
        return marks

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class Recorded(Run):
    """A run that shows its watch the gradient of every batch and of its first half, before the step changes weights."""

    def _train_step(self, images: Tensor, labels: Tensor) -> None:
        interval = self.steps_per_epoch
        if (self.step + 1) % interval == 0 or (self.step + 1) % interval > interval - WHOLE:
            weights = [sparse.parameter for sparse in self.parts.handle.parameters]
            whole, half = (self._gradients(weights, images[:n], labels[:n]) for n in (len(labels), len(labels) // 2))
            self.view.kept.append(whole)  # type: ignore[union-attr]
            self.view.halves.append(half)  # type: ignore[union-attr]
        super()._train_step(images, labels)

    def _gradients(self, weights: list[Tensor], images: Tensor, labels: Tensor) -> list[Tensor]:
        self._seed()
        loss = nn.functional.cross_entropy(self.parts.forward(images), labels)
        return [gradient.detach().clone() for gradient in torch.autograd.grad(loss, weights)]


def measure(model: str, seed: int) -> list[dict[str, Any]]:
    """Rows of one seed."""
    letter = {"option.grown_momentum": "keep", "option.warmup": "0", "window_tolerance": "0"}
    config = override(PRESETS[PRESET[model]], {**letter, "execution": "masked", "threads": "1"})
    watch = Watch()
    with tempfile.TemporaryDirectory() as folder:
        Recorded(replace(config, seed=seed, evaluate_every=100), Path(folder), view=watch).train()  # type: ignore[arg-type]
    return [{"model": model, "seed": seed, **row} for row in watch.rows]


def table(rows: list[dict[str, Any]]) -> str:
    """Mean overlap and its standard error per model, update and kind."""
    lines = []
    for model, update, kind in dict.fromkeys((r["model"], str(r["update"]), r["kind"]) for r in rows):
        own = [r for r in rows if (r["model"], str(r["update"]), r["kind"]) == (model, update, kind)]
        found = summarise([100 * float(r["overlap"]) for r in own])
        spread = "" if found.se is None else f" ± {found.se:.1f}"
        lines.append(
            (model, update, kind, f"{float(own[0]['gradients']):g}", str(found.n), f"{found.mean:.1f}{spread}")
        )
    head = (
        "Overlap with the weights that momentum of 66 steps grows, in %, ± SE over seeds. Gradients: of all weights, per update, in whole "
        "batches.\n\n"
    )
    return head + markdown(("model", "update", "evidence", "gradients", "n", "overlap %"), lines)


def main() -> int:
    """Measure what is missing, write rows and table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=PRESET, default="lenet300")
    parser.add_argument("--seeds", type=parse_seeds, default=parse_seeds("10"))
    chosen = parser.parse_args()
    path = HOME / "evidence.csv"
    rows: list[dict[str, Any]] = list(read_table(path, COLUMNS, "evidence"))
    for seed in chosen.seeds:
        if not any((r["model"], int(r["seed"])) == (chosen.model, seed) for r in rows):
            rows += measure(chosen.model, seed)
            write_table(path, COLUMNS, rows)
    (HOME / "evidence.md").write_text(table(list(read_table(path, COLUMNS, "evidence"))))
    print(table(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
