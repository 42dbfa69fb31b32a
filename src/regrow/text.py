"""Tables as plain text."""

from __future__ import annotations

from typing import Any


def as_text(renderable: Any, width: int = 120) -> str:
    """What rich would print on a terminal of this width, without colours."""
    from rich.console import Console

    console = Console(width=width, record=True, file=_Nowhere())
    console.print(renderable)
    return console.export_text().rstrip()


class _Nowhere:
    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        return None
