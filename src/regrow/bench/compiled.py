"""torch.compile as a dense setting: with inductor, or the reason why not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def compiled(target: Any, run: Callable[[Any], object]) -> tuple[Any | None, str]:
    """``target`` compiled by inductor and run once by ``run``; None with the reason where it cannot compile here."""
    torch._dynamo.reset()
    try:
        candidate = torch.compile(target)
        run(candidate)
    # A missing or failing compiler surfaces as any of many kinds of exception; the reason is shown and recorded.
    except Exception as error:
        return None, f"torch.compile failed: {type(error).__name__}: {' '.join(str(error).split())[:120]}"
    return candidate, ""
