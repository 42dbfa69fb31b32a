"""IDX files to read."""

import gzip

from regrow.data.idx import dump_idx


def write_idx(path, array):
    """Write an IDX file, compressed if the name ends in ``.gz``."""
    content = dump_idx(array)
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
