"""Disks that are really full and files that really may not be read: one line with the file's name, and the same bits afterwards."""

import contextlib
import errno
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from regrow.config import Sparse
from regrow.training.checkpoint import Checkpoints
from regrow.training.run import Run
from tests.training import tiny

pytestmark = pytest.mark.deep
NOBODY = 65534
needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may mount a disk or become nobody"
)


@contextlib.contextmanager
def small_disk(place, megabytes):
    """A disk in memory of its own."""
    place.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("there is no mount here")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", place], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"a disk in memory cannot be mounted here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


@needs_root
@pytest.mark.parametrize("kilobytes", [0, 20, 50, 90])
def test_a_full_disk_ends_a_run_with_the_name_of_the_file_and_loses_nothing(kilobytes, tmp_path):
    data = tiny.write_data(tmp_path / "data.npz", train=120, test=40)
    sparse = Sparse(density=0.3, update_every=2)
    config = tiny.config(data, epochs=1, log_every=1, sparse=sparse, checkpoint_seconds=0.0)
    Run(config, tmp_path / "whole").train()
    with small_disk(tmp_path / "disk", megabytes=4) as disk:
        ballast = disk / "others"
        ballast.write_bytes(bytes(shutil.disk_usage(disk).free - kilobytes * 1024))
        with pytest.raises(OSError, match=r"disk/run") as caught:
            Run(config, disk / "run").train()
        assert caught.value.errno == errno.ENOSPC
        assert Path(caught.value.filename).suffix  # a file, not the folder it would be in
        ballast.unlink()
        Run(config, disk / "run").train()
        assert tiny.digests(disk / "run") == tiny.digests(tmp_path / "whole")
        assert not tiny.leftovers(disk / "run")


@pytest.fixture
def open_folder():
    """One that everybody may enter: pytest's own are its user's alone."""
    with tempfile.TemporaryDirectory(prefix="regrow-open-") as place:
        os.chmod(place, 0o755)
        yield Path(place)


@needs_root
def test_a_checkpoint_that_may_not_be_read_stops_a_run_and_is_kept(open_folder):
    folder = open_folder / "checkpoints"
    checkpoints = Checkpoints(folder)
    for step in (1, 2):
        checkpoints.save(step, {"step": step})
    (folder / "step-00000002" / "manifest.json").chmod(0)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setuid(NOBODY)
            checkpoints.latest()
            os.write(writing, b"read")
        except Exception as error:
            os.write(writing, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as answer:
        said = answer.read()
    assert said.startswith("StateError")
    assert "step-00000002 cannot be opened (Permission denied)" in said
    assert len(checkpoints.paths()) == 2
