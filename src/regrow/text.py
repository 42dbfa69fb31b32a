"""Tables as plain text."""

from __future__ import annotations

import io
from typing import Any


def as_text(renderable: Any, width: int = 120) -> str:
    """What rich would print on a terminal of this width, without colours."""
    from rich.console import Console

    console = Console(width=width, record=True, file=io.StringIO())
    console.print(renderable)
    return console.export_text().rstrip()
