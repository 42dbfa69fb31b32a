"""The records of `regrow bench` as one table: rows of layers and networks, columns of densities."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regrow.experiments.tables import markdown

SQUARE = ("64->64@32", "128->128@16", "256->256@8", "512->512@4")

Record = dict[str, Any]
# Label, file, which records, what of them, goals at 5, 10, 20, 30%.
ROWS: tuple[tuple[str, str, Callable[[Record], bool], str, tuple[float, ...]], ...] = (
    (
        "3x3 conv, batch 128, median of 64@32, 128@16, 256@8, 512@4",
        "layers",
        lambda r: r["layer"].startswith("conv 3x3/1") and r["layer"].split()[2] in SQUARE,
        "ratio",
        (8, 5, 2.9, 2.1),
    ),
    (
        "linear 4096 x 4096, batch 128",
        "layers",
        lambda r: r["layer"].endswith("4096 batch 128"),
        "ratio",
        (7, 4.5, 2.5, 1.7),
    ),
    (
        "the same, compact storage",
        "layers",
        lambda r: r["layer"].endswith("4096 batch 128"),
        "compact_ratio",
        (8, 5, 2.7, 1.8),
    ),
    (
        "linear 4096 x 4096, batch 2048",
        "layers",
        lambda r: r["layer"].endswith("4096 batch 2048"),
        "ratio",
        (7, 4.5, 2.5, 1.7),
    ),
    ("linear 768 -> 3072, 2,048 rows", "layers", lambda r: "768->3072" in r["layer"], "ratio", (7, 4, 2.3, 1.6)),
    ("linear 3072 -> 768, 2,048 rows", "layers", lambda r: "3072->768" in r["layer"], "ratio", (7, 4, 2.3, 1.6)),
    ("linear 784 -> 300, batch 100", "layers", lambda r: "784->300" in r["layer"], "ratio", (3, 2, 1.3, 1.0)),
    (
        "1x1 conv, median of 256@16 and 512@8",
        "layers",
        lambda r: r["layer"].startswith("conv 1x1"),
        "ratio",
        (6, 4, 2.4, 1.7),
    ),
    ("VGG16-D, forward + backward, batch 128", "vgg16-d", lambda r: True, "ratio", (5, 3.7, 2.4, 1.8)),
    ("the same with SGD", "vgg16-d", lambda r: True, "step_ratio", ()),
    ("the same over an epoch with growth windows", "vgg16-d", lambda r: True, "epoch_ratio", (3.5, 2.9, 2.0, 1.6)),
    ("GPT of 10M weights, forward + backward, 8 x 256 tokens", "gpt-10m", lambda r: True, "ratio", ()),
    ("the same with AdamW", "gpt-10m", lambda r: True, "step_ratio", ()),
    ("WRN-16-8, forward + backward, batch 128", "wrn-16-8", lambda r: True, "ratio", (5, 3.7, 2.4, 1.8)),
    ("the same with SGD", "wrn-16-8", lambda r: True, "step_ratio", ()),
    ("the same over an epoch with growth windows", "wrn-16-8", lambda r: True, "epoch_ratio", (3.5, 2.9, 2.0, 1.6)),
)


def table(folder: Path, columns: str) -> str:
    """The Markdown table for densities in percent, separated by commas; with ``goals`` among them, those stand in brackets."""
    wanted = [column for column in columns.split(",") if column != "goals"]
    stored = {file: _rows(folder / f"{file}.json") for file in {row[1] for row in ROWS}}
    rows = []
    for label, file, chosen, field, goals in ROWS:
        records = [record for record in stored[file] or () if chosen(record)]
        aims = dict(zip(("5", "10", "20", "30"), goals, strict=False)) if "goals" in columns else {}
        rows.append((label, *(_figure(records, float(column) / 100, field, aims.get(column)) for column in wanted)))
    shown = [row for row, (_, file, *_) in zip(rows, ROWS, strict=True) if stored[file] is not None]
    return markdown(("", *(f"{column}%" for column in wanted)), [row for row in shown if any(row[1:])])


def _rows(path: Path) -> list[Record] | None:
    """The records of a file; None where nothing was measured with this instruction set."""
    return json.loads(path.read_text())["rows"] if path.is_file() else None


def _figure(records: list[Record], density: float, field: str, goal: float | None) -> str:
    found = [record[field] for record in records if abs(record["density"] - density) < 1e-9 and record.get(field)]
    if not found:
        return ""
    return f"{statistics.median(found):.1f}x" + (f" ({goal:g}x)" if goal else "")


def masks(folder: Path) -> str:
    """The Markdown table of real masks: the speed-up beside the bound from their multiply-accumulates."""
    header = ("weights", "MACs kept", "bound", "forward + backward", "share of the bound", "with SGD")
    rows = []
    for record in sorted(json.loads((folder / "vgg16-d-masks.json").read_text())["rows"], key=lambda r: r["density"]):
        bound, share = record["bound"], record["bound_share"]
        kept = f"{100 / bound:.0f}%", f"{bound:.1f}x", f"{record['ratio']:.1f}x", f"{100 * share:.0f}%"
        rows.append((f"{100 * record['density']:.3g}%", *kept, f"{record['step_ratio']:.1f}x"))
    return markdown(header, rows)


def overhead(folder: Path) -> str:
    """The Markdown table of what masks and updates cost beside dense steps, as speed relative to the dense network."""
    header = ("network", "batch", "rounds", "relative speed, lowest .. highest", "procedure alone")
    rows = []
    for record in json.loads((folder / "overhead.json").read_text())["results"]:
        low, high = 1 / record["ratio_highest"], 1 / record["ratio_lowest"]
        speed, alone = f"{1 / record['ratio']:.3f}, {low:.2f} .. {high:.2f}", f"{100 * record['alone_share']:.1f}%"
        rows.append((record["network"], str(record["batch"][0]), str(record["rounds"]), speed, alone))
    return markdown(header, rows)
