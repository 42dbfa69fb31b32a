"""The records of `regrow bench` as one table: rows of layers and networks, columns of densities."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regrow.experiments.tables import markdown

SQUARE = ("64->64@32", "128->128@16", "256->256@8", "512->512@4")

Record = dict[str, Any]
Goals = tuple[float, ...]


@dataclass(frozen=True)
class Row:
    """A line of the table: of which file's records which field is shown, and the goals at 5, 10, 20, 30% by instruction set."""

    label: str
    file: str
    field: str
    avx512: Goals = ()
    avx2: Goals = ()
    has: Callable[[str], bool] = lambda layer: True

    def goals(self, isa: str) -> dict[str, float]:
        """By density in percent; none where none was set."""
        return dict(zip(("5", "10", "20", "30"), {"avx512": self.avx512, "avx2": self.avx2}.get(isa, ()), strict=False))


def _square(layer: str) -> bool:
    return layer.startswith("conv 3x3/1") and layer.split()[2] in SQUARE


_LINEAR, _NARROW = (8.0, 5.0, 2.7, 1.8), (7.0, 4.0, 2.3, 1.6)
_OLDER, _OLDER_WINDOWS = (5.0, 3.7, 2.4, 1.8), (3.5, 2.9, 2.0, 1.6)
ROWS = (
    Row(
        "3x3 conv, batch 128, median of 64@32, 128@16, 256@8, 512@4",
        "layers",
        "ratio",
        (8, 5, 3.2, 2.2),
        (9, 6, 3.5, 2.5),
        _square,
    ),
    Row(
        "1x1 conv, median of 256@16 and 512@8",
        "layers",
        "ratio",
        (6, 4, 2.4, 1.7),
        (7, 4.5, 2.6, 1.8),
        lambda layer: layer.startswith("conv 1x1"),
    ),
    Row("linear 4096 x 4096, batch 128", "layers", "ratio", has=lambda layer: layer.endswith("4096 batch 128")),
    Row(
        "the same, compact storage",
        "layers",
        "compact_ratio",
        _LINEAR,
        _LINEAR,
        lambda layer: layer.endswith("4096 batch 128"),
    ),
    Row("linear 4096 x 4096, batch 2048", "layers", "ratio", has=lambda layer: layer.endswith("4096 batch 2048")),
    Row(
        "linear 768 -> 3072, 2,048 rows",
        "layers",
        "ratio",
        _NARROW,
        (7, 4.5, 2.5, 1.7),
        lambda layer: "768->3072" in layer,
    ),
    Row(
        "linear 3072 -> 768, 2,048 rows",
        "layers",
        "ratio",
        _NARROW,
        (7, 4.5, 2.5, 1.7),
        lambda layer: "3072->768" in layer,
    ),
    Row(
        "linear 784 -> 300, batch 100",
        "layers",
        "ratio",
        (3, 2, 1.3, 1.0),
        (3, 2.4, 1.5, 1.1),
        lambda layer: "784->300" in layer,
    ),
    Row("VGG16-D, forward + backward, batch 128", "vgg16-d", "ratio"),
    Row("the same with SGD", "vgg16-d", "step_ratio", (7, 5, 3.2, 2.3), (8, 5.5, 3.6, 2.9)),
    Row(
        "the same over an epoch with growth windows",
        "vgg16-d",
        "epoch_ratio",
        (5, 4, 2.8, 2.1),
        (5.5, 4.5, 3.2, 2.6),
    ),
    Row("GPT of 10M weights, 8 x 256 tokens, with AdamW", "gpt-10m", "step_ratio"),
    Row("its blocks alone", "gpt-10m", "blocks_ratio"),
    Row(
        "GPT-2 small's shape, 4 x 1,024 tokens, with AdamW, head dense",
        "gpt2-small",
        "step_ratio",
        (0, 1.7, 1.4),
        (0, 1.7, 1.4),
    ),
    Row("its blocks alone", "gpt2-small", "blocks_ratio", (0, 2.8, 1.9), (0, 2.8, 1.9)),
    Row("WRN-16-8, forward + backward, batch 128", "wrn-16-8", "ratio", avx2=_OLDER),
    Row("the same with SGD", "wrn-16-8", "step_ratio"),
    Row("the same over an epoch with growth windows", "wrn-16-8", "epoch_ratio", avx2=_OLDER_WINDOWS),
)


def table(folder: Path, columns: str) -> str:
    """The Markdown table for densities in percent, separated by commas; with ``goals`` among them, those stand in brackets.

    The folder has the name of the instruction set, and perhaps behind a dash that of another machine.
    """
    wanted = [column for column in columns.split(",") if column != "goals"]
    stored = {file: _rows(folder / f"{file}.json") for file in {row.file for row in ROWS}}
    rows = []
    for row in ROWS:
        records = [record for record in stored[row.file] or () if row.has(record.get("layer", ""))]
        aims = row.goals(folder.name.partition("-")[0]) if "goals" in columns else {}
        rows.append(
            (row.label, *(_figure(records, float(column) / 100, row.field, aims.get(column)) for column in wanted))
        )
    return markdown(("", *(f"{column}%" for column in wanted)), [row for row in rows if any(row[1:])])


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
