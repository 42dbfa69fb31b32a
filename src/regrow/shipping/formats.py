"""Other formats: ONNX, and programs of torch.export. Both take batches of any size.

ONNX files hold dense weights of the channels that are left: what every runtime reads. Sparse initialisers (12 bytes per weight: float32
value, int64 place) are read by ONNX Runtime, which makes them dense at load, and by the reference evaluator of the `onnx` package;
OpenVINO, tract and TVM refuse them. They save disk, not time.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regrow.errors import MissingPackageError, StateError
from regrow.files import write_atomically
from regrow.shipping.freeze import Frozen

_SPARSE_BYTES = 12
_DENSE_BYTES = 4


def write_onnx(path: Path, frozen: Frozen, example: Tensor, sparse: bool = False) -> int:
    """Write an ONNX file; returns its size. The input is called `input`, the output `output`."""
    onnx = _import_onnx()
    with _quietly():
        program = torch.onnx.export(
            frozen.dense(),
            (_two(example),),
            dynamo=True,
            input_names=["input"],
            output_names=["output"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            verbose=False,
        )
    assert program is not None
    proto = program.model_proto
    if sparse:
        _make_sparse(proto, onnx)
    onnx.checker.check_model(proto)
    content = proto.SerializeToString()
    write_atomically(path, content)
    return len(content)


def write_program(path: Path, frozen: Frozen, example: Tensor, dense: bool = False) -> int:
    """Write a program of torch.export; returns its size.

    A ``dense`` one has the channels that are left and needs plain torch only; others need `from regrow import load` where they are loaded.
    """
    if frozen.untraced is not None:
        raise StateError(f"this network could not be traced, so it cannot be exported: {frozen.untraced}")
    module: nn.Module = frozen.dense() if dense else frozen.program
    with torch.no_grad(), _quietly():
        program = torch.export.export(module, (_two(example),), dynamic_shapes=({0: torch.export.Dim("batch")},))
        buffer = io.BytesIO()
        torch.export.save(program, buffer)
    write_atomically(path, buffer.getvalue())
    return len(buffer.getvalue())


def _two(example: Tensor) -> Tensor:
    """A batch of two: torch takes a size of one for a constant."""
    return example.expand(2, *example.shape[1:]).contiguous()


def _make_sparse(proto: Any, onnx: Any) -> None:
    """Move weights that are mostly zero from the dense to the sparse initialisers."""
    graph = proto.graph
    for initialiser in list(graph.initializer):
        array = onnx.numpy_helper.to_array(initialiser)
        where = np.flatnonzero(array)
        if array.dtype != np.float32 or array.ndim < 2 or _SPARSE_BYTES * len(where) >= _DENSE_BYTES * array.size:
            continue
        values = onnx.numpy_helper.from_array(array.reshape(-1)[where], initialiser.name)
        places = onnx.numpy_helper.from_array(where.astype(np.int64), f"{initialiser.name}_places")
        graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, places, array.shape))
        graph.initializer.remove(initialiser)


def _import_onnx() -> Any:
    try:
        import onnx
        import onnx.checker
        import onnx.numpy_helper
        import onnxscript  # noqa: F401  (torch's exporter needs it)
    except ImportError as error:
        raise MissingPackageError(f"ONNX files need the onnx packages ({error}): pip install 'regrow[onnx]'") from error
    return onnx


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without the exporter's own messages, which are about torch's future and not about this network."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
