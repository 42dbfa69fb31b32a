"""Show what this machine offers and what is missing."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No arguments."""


def run(options: argparse.Namespace) -> int:
    """Print the table."""
    from rich.console import Console
    from rich.table import Table

    from regrow.allocator import keep_buffers
    from regrow.environment import describe

    table = Table("what", "finding", show_header=False)
    for key, value in describe().items():
        table.add_row(key, str(value))
    table.add_row(
        "large buffers",
        "kept between steps (glibc thresholds raised)" if keep_buffers() else "left to the system's allocator",
    )
    for name, purpose in OPTIONAL.items():
        table.add_row(name, f"{_found(name)} ({purpose})")
    Console().print(table)
    return 0


OPTIONAL = {
    "timm": "models by name, timm:NAME",
    "tensorboard": "train --tensorboard",
    "lightning": "tested integration",
    "accelerate": "tested integration",
    "transformers": "tested integration",
}


def _found(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"installed, {version(package)}"
    except PackageNotFoundError:
        return "not installed"
