"""``regrow demo``: train, measure, show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from regrow.allocator import keep_buffers
from regrow.config import Config, Data
from regrow.data import FetchError, get
from regrow.demo import show
from regrow.demo.measure import Row, rows
from regrow.demo.pairs import Pair, pairs
from regrow.environment import processor_name
from regrow.execution import available, instruction_set
from regrow.files import write_atomically
from regrow.report import write_report
from regrow.training.main import alone_in, nothing_left
from regrow.training.processes import Processes, use_threads
from regrow.training.run import Run
from regrow.training.setup import load_split


def demo(out: Path, data: str = "", steps: int = 0) -> int:
    """Train all arms in ``out``, or go on where an earlier call was stopped, and compare them."""
    console = Console()
    keep_buffers()
    use_threads(1)
    data, note = (data, data) if data else _data()
    _say(console, f"data: {note}")
    if not available():
        _say(
            console,
            "no kernels were built (needs a C++17 compiler): the sparse networks compute masked, and gain no speed",
        )
    table: list[Row] = []
    reports: list[Path] = []
    for pair in pairs(data, _images(data), "sparse" if available() else "masked", steps):
        folders = {arm: out / f"{config.model}-{arm}" for arm, config in pair.arms.items()}
        results = {arm: _train(pair, arm, folder, console) for arm, folder in folders.items()}
        table += rows(pair, folders, results)
        reports += [write_report(folder) for folder in folders.values()]
    machine = f"{processor_name()} ({instruction_set() if available() else 'no kernels'})"
    lines, commands = show.sentences(table, note, machine), show.next_commands(folders["sparse"])
    target = out / "index.html"
    links = [path.relative_to(out) for path in reports]
    write_atomically(target, show.page(table, lines, commands, links).encode())
    console.print(show.table(table))
    _say(console, "\n".join([*lines, "", f"As a page: {target}", "Next:", *(f"  {command}" for command in commands)]))
    return 0


def _data() -> tuple[str, str]:
    """MNIST if it is here or can be fetched, otherwise the sample in the package; and which it is, in words."""
    try:
        get("mnist")
    except FetchError:
        return (
            "mnist-sample",
            "a sample of MNIST, as MNIST itself cannot be fetched now: errors are higher than with all of it",
        )
    return "mnist", "MNIST, 60,000 handwritten digits"


def _images(data: str) -> int:
    return len(load_split(Config(data=Data(data)), "train"))


def _train(pair: Pair, arm: str, folder: Path, console: Console) -> dict[str, Any]:
    config = pair.arms[arm]
    with alone_in(folder), nothing_left(folder):
        run = Run(config, folder, Processes())
        _say(console, f"{pair.title}, {arm}: {run.total_steps - run.step:,} steps in {folder}")
        result = run.train()
    assert result is not None, "nobody asks this run to stop"
    return result


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True, markup=False)
