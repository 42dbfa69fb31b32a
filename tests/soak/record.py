"""Counts as a table to keep: one row per suite, count and place, so that a reader knows which code found nothing where."""

import csv
import io

from regrow import environment
from regrow.files import write_atomically

KEY = ("suite", "what", "code", "processor", "kernels", "torch")
"""What tells rows apart; ``code`` is the hash of the package's files that `regrow doctor` and runs show."""


def place():
    """The code and machine that count now."""
    found = environment.describe()
    return {name: str(found[name]) for name in KEY[2:]}


def add(path, suite, counts, where=None):
    """Add the counts of one call to their rows."""
    rows = {tuple(row[name] for name in KEY): int(row["count"]) for row in read(path)}
    where = where or place()
    for what, count in counts.items():
        key = (suite, what, *(where[name] for name in KEY[2:]))
        rows[key] = rows.get(key, 0) + count
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*KEY, "count"))
    writer.writerows((*key, count) for key, count in sorted(rows.items()))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.getvalue().encode())


def read(path):
    """All rows so far."""
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
