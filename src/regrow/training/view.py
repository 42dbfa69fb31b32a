"""Watching a run: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from regrow.config import Config, changes, toml_value
from regrow.errors import MissingPackageError
from regrow.plan import PRICE, nanoseconds
from regrow.topology.journal import Record
from regrow.training.folder import RunFolder
from regrow.training.run import Run

ALL_LAYERS = 24  # more layers than this would fill the screen at every update
MOST_CHANGED = 12


class PlainView:
    """One line per evaluation and topology update."""

    def __init__(self, console: Console, folder: Path) -> None:
        self.console, self.folder = console, folder

    def started(self, run: Run) -> None:
        """What runs, where, from which step, and with which settings besides the defaults."""
        self._say(
            f"{_start(run)}: {run.config.model}, {run.parts.handle!r}, {run.total_steps:,} steps, folder {self.folder}"
        )
        self._say(f"settings: {_settings(run.config)}; all of them: {run.files.config}")
        auto = run.parts.handle.switch.auto
        if auto is not None and (run.resumed_from is not None or not auto.pending):
            self.chosen(run)
        if note := _early_end(run):
            self._say(note)

    def chosen(self, run: Run) -> None:
        """Which layers run on sparse kernels, and why, when that was measured (or resumed)."""
        self.console.print(run.parts.handle.explain())

    def stepped(self, run: Run) -> None:
        """Nothing on plain output."""

    def row(self, run: Run, row: dict[str, Any]) -> None:
        """One line per epoch, one for the test."""
        if row["kind"] == "train" and run.step % run.steps_per_epoch and run.step < run.total_steps:
            return
        where = f"epoch {row['epoch']:6.2f}  step {row['step']:>7,}"
        what = f"{row['kind']:<10}  loss {row['loss']:.4f}  accuracy {row['accuracy']:.2%}"
        # The same figure as at the end of the run: the median over all steps until now.
        speed = f"  {run.log.median_speed():,.0f} images/s" if row["kind"] == "train" and run.speed is not None else ""
        self._say(f"{where}  {what}  density {row['density']:.2%}{speed}")

    def updated(self, run: Run) -> None:
        """The densities after a topology update."""
        self._say("\n".join(update_lines(run.parts.handle.journal[-1], self.console.width)))

    def stopped(self, run: Run) -> None:
        """Where the run stopped and how it goes on."""
        self._say(f"stopped at step {run.step:,} and saved: the same command resumes")

    def finished(self, run: Run, result: dict[str, Any]) -> None:
        """The final table, and the speed where this process trained."""
        model, share = run.config.model, f"{result['density']:.2%} of the weights"
        # As a title it would wrap at the table's width.
        self._say(f"test error {result['test_error']:.2f}%  ({model}, {share})")
        table = Table()
        rows = [row for row in run.parts.handle.plan() if row.sparse]
        priced = [PRICE] if any(row.cost is not None for row in rows) else []
        for column in ("layer", "shape", "density", "non-zeros", *priced):
            table.add_column(column, justify="left" if column == "layer" else "right")
        for row in rows:
            shape, price = "x".join(map(str, row.shape)), [nanoseconds(row.cost)] if priced else []
            table.add_row(escape(row.layer), shape, f"{row.density:.2%}", f"{row.nonzeros:,}", *price)
        self.console.print(table)
        if run.step > run.began_at:
            self._say(f"{result['images_per_second']:,.0f} images/s (median), {result['execution']} execution")
        self._say(next_steps(self.folder))

    def close(self) -> None:
        """Nothing to close."""

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)


def next_steps(folder: Path) -> str:
    """Where a finished run lies, and what to do with it."""
    return (
        f"the run is in {folder}; next:\n"
        f"  regrow report {folder}    # one HTML page\n"
        f"  regrow evaluate {folder}\n"
        f"  regrow export {folder} --to model.safetensors"
    )


def update_lines(record: Record, width: int) -> list[str]:
    """A topology update in words: densities of all layers, in columns where one line is too short.

    Of deep networks only the layers are shown that won or lost most weights, in the network's order; the run's ``topology.jsonl`` has all.
    """
    layers, left = record.layers, 0
    if len(layers) > ALL_LAYERS:
        movers = sorted(layers, key=lambda layer: abs(layer.after - layer.before), reverse=True)[:MOST_CHANGED]
        layers, left = tuple(layer for layer in layers if layer in movers), len(layers) - MOST_CHANGED
    head = f"  update {record.update}  prune rate {record.prune_rate:.3f}"
    if record.compute is not None:
        head += f"  {record.budget:,} weights, {record.compute:.2%} of dense compute"
    cells = [f"{layer.layer} {layer.density:.1%}" for layer in layers]
    line = "  ".join([head, *cells])
    if not left and len(line) <= width:
        return [line]
    lines = [head, *_columns(cells, width, indent=4)]
    return lines if not left else [*lines, f"    and {left} layers that changed less: topology.jsonl"]


def _columns(cells: list[str], width: int, indent: int) -> list[str]:
    """Cells row by row in columns of equal width, as many as fit; one at least."""
    widest = max(map(len, cells))
    across = max(1, (width - indent + 2) // (widest + 2))
    rows = [cells[start : start + across] for start in range(0, len(cells), across)]
    return [" " * indent + "  ".join(cell.ljust(widest) for cell in row).rstrip() for row in rows]


def _start(run: Run) -> str:
    if run.resumed_from is None:
        return "starting"
    return f"already finished at step {run.step:,}" if run.finished else f"resuming at step {run.step:,}"


def _settings(config: Config) -> str:
    return ", ".join(f"{path} = {toml_value(value)}" for path, value in changes(config).items()) or "the defaults"


def _early_end(run: Run) -> str | None:
    """A note where ``max_steps`` ends the run before its first topology update."""
    handle = run.parts.handle
    clock = handle.settings.clock
    if clock is None or handle.updates:
        return None
    instead = clock.when.phase == "instead"
    first = clock.next_due(run.step if instead else run.step + 1)
    if first is None or first + instead <= run.total_steps:
        return None
    return f"note: the first topology update is due at step {first:,}; this run ends at {run.total_steps:,}, its masks do not change"


class _TwoLines(Progress):
    """The bar with its times, and below it how training goes: side by side they need 140 columns."""

    def get_renderables(self) -> Iterator[RenderableType]:
        """Both lines."""
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            yield Text(task.fields["state"], no_wrap=True, overflow="ellipsis")


class LiveView(PlainView):
    """A progress bar with ETA, loss, accuracy, speed, density and prune rate, above it the lines of the plain view."""

    def __init__(self, console: Console, folder: Path) -> None:
        super().__init__(console, folder)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.completed:,}/{task.total:,}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self.progress = _TwoLines(*columns, console=console, refresh_per_second=4, expand=True)
        self._shown = 0.0

    def started(self, run: Run) -> None:
        """Start the bar at the step the run starts from."""
        super().started(run)
        self.progress.start()
        self.task = self.progress.add_task("training", total=run.total_steps, completed=run.step, state="")

    def stepped(self, run: Run) -> None:
        """Move the bar, a few times a second."""
        now = time.monotonic()
        if now - self._shown < 0.25 and run.step < run.total_steps:
            return
        self._shown = now
        tally, handle = run.tally, run.parts.handle
        seen = max(1, tally.samples)
        speed = "" if run.pace.recent is None else f"{run.pace.recent:,.0f} images/s  "
        state = (
            f"loss {tally.loss / seen:.3f}  accuracy {tally.hits / seen:.1%}  {speed}"
            f"density {handle.budget / handle.numel:.2%}  prune rate {handle.prune_rate:.3f}"
        )
        self.progress.update(self.task, completed=run.step, state=state)

    def close(self) -> None:
        """Leave the terminal in order."""
        self.progress.stop()


class TensorBoardView:
    """Mirror rows to TensorBoard, where the package is installed."""

    def __init__(self, inner: PlainView, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingPackageError("--tensorboard needs the package: pip install 'regrow[tensorboard]'") from error
        self.inner, self.folder, self._make = inner, folder, SummaryWriter
        self.writer: SummaryWriter | None = None

    def started(self, run: Run) -> None:
        """Open the log, only now that the folder is the run's, without what a resumed run does again."""
        again = None if run.resumed_from is None else run.resumed_from + 1
        self.writer = self._make(str(RunFolder(self.folder).tensorboard), purge_step=again)
        self.inner.started(run)

    def row(self, run: Run, row: dict[str, Any]) -> None:
        """Write a row's numbers."""
        self.inner.row(run, row)
        assert self.writer is not None
        for key in ("loss", "accuracy", "lr", "density", "prune_rate"):
            self.writer.add_scalar(f"{row['kind']}/{key}", row[key], row["step"])

    def close(self) -> None:
        """Flush."""
        if self.writer is not None:
            self.writer.close()
        self.inner.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def make_view(config: Config, folder: Path) -> Any:
    """A live bar on a terminal, plain lines elsewhere."""
    console = Console()
    view: Any = LiveView(console, folder) if console.is_terminal else PlainView(console, folder)
    return TensorBoardView(view, folder) if config.tensorboard else view
