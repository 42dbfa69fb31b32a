"""What a sweep starts for each run: ``regrow train`` in a process that does not outlive the sweep.

    python -m regrow.cli.worker FOLDER

trains FOLDER/job.toml in FOLDER. It waits while another process, left over from a killed sweep, is still saving there.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

from regrow.cli import main as program

_PR_SET_PDEATHSIG = 1


def main(folder: Path) -> int:
    """Train a job's configuration in its folder."""
    stop_with_parent()
    lock = wait_for(folder)
    try:
        return program.main(["train", str(folder / "job.toml"), "--out", str(folder)])
    finally:
        os.close(lock)


def stop_with_parent() -> bool:
    """Ask Linux for SIGTERM, which saves and stops a run, when the parent dies; False on other systems."""
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM) == 0


def wait_for(folder: Path) -> int:
    """Hold the folder's lock, which the system lets go when a process dies; returns its descriptor."""
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    if os.name == "posix":
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
