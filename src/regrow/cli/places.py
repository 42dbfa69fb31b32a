"""Places in the file system that a user names."""

from __future__ import annotations

import argparse
from pathlib import Path


def place(text: str) -> Path:
    """A path; the empty text, which would be the current folder, is hardly meant (an unset variable in a script)."""
    if not text.strip():
        raise argparse.ArgumentTypeError("is empty: name a folder, or leave it out")
    return Path(text)
