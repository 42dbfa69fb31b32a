"""Static sparse: random masks that never change, the necessary control."""

from __future__ import annotations

from regrow.methods.method import Method


def method() -> Method:
    """Random masks, fixed: w <- w * m with m drawn once. Any ``distribution``; uniform by default."""
    return Method(name="static", paper="control", year=2018, summary="random masks that never change")
