"""A run's report: one self-contained HTML file."""

from __future__ import annotations

from pathlib import Path


def write_report(folder: Path | str, out: Path | str | None = None) -> Path:
    """Write the report of a run, finished or not, and return its path (by default ``report.html`` in the folder).

    The file needs nothing else: style and figures are inside, there is no script. The same folder gives the same bytes.

    Example:
        >>> write_report("runs/lenet300")  # doctest: +SKIP
        PosixPath('runs/lenet300/report.html')
    """
    from regrow.files import write_atomically
    from regrow.report.history import history
    from regrow.report.page import page
    from regrow.report.reading import read_run
    from regrow.report.snapshot import take
    from regrow.report.work import training_work
    from regrow.training.folder import RunFolder

    folder = Path(folder)
    files = read_run(folder)
    past = history(files.journal)
    shot = take(files)
    target = RunFolder(folder).report if out is None else Path(out)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, page(files, past, shot, training_work(shot, past, files.step)).encode())
    return target
