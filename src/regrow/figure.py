"""Figures as files: the same numbers give the same bytes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from regrow.files import write_atomically


def blank(width: float, height: float) -> Any:
    """An empty figure, in inches, without pyplot and its global state."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Any, stem: Path) -> list[Path]:
    """Write ``stem.svg`` and ``stem.png``."""
    import matplotlib

    written = [stem.with_name(f"{stem.name}.{ending}") for ending in ("svg", "png")]
    with matplotlib.rc_context({"svg.hashsalt": "regrow"}):
        for path in written:
            drawn, metadata = io.BytesIO(), {"Date": None} if path.suffix == ".svg" else None
            figure.savefig(drawn, format=path.suffix[1:], dpi=150, metadata=metadata)
            write_atomically(path, drawn.getvalue())
    return written
