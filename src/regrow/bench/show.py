"""Rows of benchmarks as lines and tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich import box
from rich.table import Table

Record = dict[str, Any]


def name_of(record: Record) -> str:
    """The layer or model of a row, with the run whose masks it had."""
    name = str(record.get("layer", record.get("model")))
    source = str(record.get("masks", "uniform"))
    return name if source.startswith("uniform") else f"{name} ({source})"


def line(record: Record) -> str:
    """One row as soon as it is measured."""
    settings = "  ".join(f"{name} {value:.1f}" for name, value in record["dense_settings_ms"].items())
    times = f"{settings}  masked {record['masked_ms']:.1f}  sparse {record['sparse_ms']:.1f} ms"
    auto = f"  auto {record['auto_ms']:.1f} ms  {record['auto_ratio']:.2f}x" if record.get("auto_ms") else ""
    return f"{name_of(record)}  {record['density']:.3g}  {times}  {record['ratio']:.2f}x{auto}"


def tables(records: Sequence[Record], peak: float) -> list[Table]:
    """Times and ratios; the bound from MACs and memory. Columns and tables that no row fills are left out."""
    times = {
        "density": lambda r: f"{100 * r['density']:.3g}%",
        "dense ms": lambda r: f"{r['dense_ms']:.2f}",
        "masked": lambda r: f"{r['masked_ms']:.2f}",
        "sparse": lambda r: f"{r['sparse_ms']:.2f}",
        "ratio": lambda r: f"{r['ratio']:.2f}x",
        "GFLOP/s": lambda r: f"{r['useful_gflops']:.0f} ({r['useful_gflops'] / peak:.0%})",
        "compact": lambda r: _times(r.get("compact_ratio")),
        "auto": lambda r: _times(r.get("auto_ratio")),
        "with optimizer": lambda r: _times(r.get("step_ratio")),
        "epoch": lambda r: _times(r.get("epoch_ratio")),
        "blocks alone": lambda r: _times(r.get("blocks_ratio")),
    }
    rest = {
        "density": times["density"],
        "bound from MACs": lambda r: f"{r['bound']:.2f}x" if "bound" in r else "",
        "reached": lambda r: f"{r['bound_share']:.0%}" if "bound" in r else "",
        "attention, of dense": lambda r: _share(r.get("attention_share")),
        "head, of dense": lambda r: _share(r.get("head_share")),
        "dense MB": lambda r: _megabytes(r.get("dense_mb")),
        "masked MB": lambda r: _megabytes(r.get("masked_mb")),
        "sparse MB": lambda r: _megabytes(r.get("sparse_mb")),
    }
    return [found for found in (_table(records, times), _table(records, rest)) if len(found.columns) > 2]


def _table(records: Sequence[Record], columns: dict[str, Callable[[Record], str]]) -> Table:
    cells = {title: [show(record) for record in records] for title, show in columns.items()}
    shown = {title: values for title, values in cells.items() if any(values)}
    result = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    result.add_column("what", no_wrap=True, overflow="fold")
    for title in shown:
        result.add_column(title, justify="right")
    for index, record in enumerate(records):
        result.add_row(name_of(record), *(values[index] for values in shown.values()))
    return result


def _megabytes(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}x"
