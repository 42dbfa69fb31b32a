"""What native functions take by reference: the records of `csrc/records.inc`, compared with the library's description at load."""

from __future__ import annotations

import ctypes
from typing import Any

_INT, _NUMBER, _POINTER, _COUNT = ctypes.c_int, ctypes.c_double, ctypes.c_void_p, ctypes.c_int64
LETTERS: dict[str, Any] = {"i": _INT, "d": _NUMBER, "p": _POINTER, "n": _COUNT}


class Geometry(ctypes.Structure):
    """A layer: sizes of its maps and its geometry."""

    _fields_ = [
        *((name, _INT) for name in ("in_channels", "out_channels", "groups", "in_rows", "in_cols")),
        *(
            (name, _INT)
            for name in ("out_rows", "out_cols", "kernel_rows", "kernel_cols", "stride_rows", "stride_cols")
        ),
        *((name, _INT) for name in ("pad_top", "pad_left", "dilation_rows", "dilation_cols")),
    ]


class Pool(ctypes.Structure):
    """Max pooling."""

    _fields_ = [
        *((name, _INT) for name in ("channels", "in_rows", "in_cols", "out_rows", "out_cols")),
        *((name, _INT) for name in ("kernel_rows", "kernel_cols", "stride_rows", "stride_cols")),
        *((name, _INT) for name in ("pad_rows", "pad_cols", "dilation_rows", "dilation_cols", "rectified")),
    ]


class ImageBatch(ctypes.Structure):
    """Samples of a set of images of bytes, as a batch of normalised numbers."""

    _fields_ = [
        *((name, _POINTER) for name in ("images", "order")),
        *((name, _COUNT) for name in ("samples", "channels", "pixels")),
        *((name, _POINTER) for name in ("scale", "shift", "y")),
        ("samples_innermost", _INT),
    ]


class SgdStep(ctypes.Structure):
    """One layer's step of SGD."""

    function = "sgd"
    _fields_ = [
        *((name, _NUMBER) for name in ("lr", "momentum", "dampening", "weight_decay")),
        *((name, _INT) for name in ("nesterov", "maximize", "first_step")),
        *((name, _POINTER) for name in ("weight", "grad", "velocity", "index")),
        ("count", _COUNT),
    ]


class AdamWStep(ctypes.Structure):
    """One layer's step of AdamW."""

    function = "adamw"
    _fields_ = [
        *((name, _NUMBER) for name in ("lr", "beta1", "beta2", "eps", "weight_decay", "step")),
        ("maximize", _INT),
        *((name, _POINTER) for name in ("weight", "grad", "first", "second", "index")),
        ("count", _COUNT),
    ]


class StackLayer(ctypes.Structure):
    """One layer of a stack."""

    _fields_ = [
        *((name, _POINTER) for name in ("plan", "input_plan", "gradient_plan", "position", "gradient_position")),
        *((name, _COUNT) for name in ("count", "gradient_count", "outputs")),
        *((name, _POINTER) for name in ("weight", "bias", "present", "y", "dx", "dw", "dbias")),
    ]


class ProgramTensor(ctypes.Structure):
    """A tensor of a program: maps of so many channels."""

    _fields_ = [(name, _INT) for name in ("channels", "rows", "cols")]


class ProgramStep(ctypes.Structure):
    """One step of a program."""

    _fields_ = [
        *((name, _INT) for name in ("kind", "source", "other", "target", "kernel_rows", "kernel_cols")),
        *((name, _INT) for name in ("stride_rows", "stride_cols", "pad_top", "pad_left", "dilation_rows")),
        *((name, _INT) for name in ("dilation_cols", "groups", "relu")),
        ("count", _COUNT),
        *((name, _POINTER) for name in ("where", "values", "scale", "bias")),
    ]


RECORDS: tuple[type[ctypes.Structure], ...] = (
    Geometry, Pool, ImageBatch, SgdStep, AdamWStep, StackLayer, ProgramTensor, ProgramStep,
)  # fmt: skip


def described(record: type[ctypes.Structure]) -> str:
    """A record as `csrc/abi.h` describes it: size, then name, type and place of each field.

    >>> described(Pool).split()[:3]
    ['56', 'channels:i:0', 'in_rows:i:4']
    """
    letters = {kind: letter for letter, kind in LETTERS.items()}
    fields = (f"{name}:{letters[kind]}:{getattr(record, name).offset}" for name, kind, *_ in record._fields_)
    return " ".join([str(ctypes.sizeof(record)), *fields])
