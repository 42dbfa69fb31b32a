"""Write a run's report as one self-contained HTML file.

regrow report runs/lenet300-...
"""

from __future__ import annotations

import argparse
from pathlib import Path

from regrow.cli.places import place


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``regrow report``."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of a run")
    parser.add_argument("--out", type=place, help="where to write (default: RUN/report.html)")


def run(options: argparse.Namespace) -> int:
    """Write the report and print its path."""
    from regrow.report import write_report

    print(write_report(options.folder, options.out))
    return 0
