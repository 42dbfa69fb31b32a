"""The native library: found beside the package, loaded after torch (one OpenMP run time), compared with what Python expects of it."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch.autograd import forward_ad

from regrow.errors import unknown
from regrow.native.records import LETTERS, RECORDS, described

SUFFIX = {torch.float32: "f32", torch.float64: "f64"}
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_STATUS = {1: "out of memory", 2: "unexpected failure"}


class NativeError(RuntimeError):
    """The native library is missing or reported a failure."""


@functools.cache
def library_path() -> Path | None:
    """The library beside the package, or None if it was not built."""
    path = Path(__file__).parents[1] / "_kernels.abi3.so"
    return path if path.is_file() else None


@functools.cache
def library() -> ctypes.CDLL:
    """Load the library once; raise `NativeError` with the remedy if it is missing."""
    path = library_path()
    if path is None:
        raise NativeError(
            "regrow's native kernels are not built, so execution='sparse' cannot run. Install a C++17 compiler and "
            "reinstall regrow (from a source tree: `python setup.py build_ext --inplace`), or use execution='masked'."
        )
    loaded = ctypes.CDLL(str(path))
    for name in ("regrow_isa", "regrow_isas", "regrow_abi"):
        getattr(loaded, name).restype = ctypes.c_char_p
    loaded.regrow_plan_free.restype = None
    loaded.regrow_plan_free.argtypes = [ctypes.c_void_p]
    interface(loaded.regrow_abi().decode())
    _check_wish(os.environ.get("REGROW_ISA"), loaded.regrow_isas().decode().split())
    return loaded


def interface(description: str) -> dict[str, Callable[..., int]]:
    """The library's functions by name, from its description of itself (`csrc/abi.h`); records must be those that Python fills in."""
    functions: dict[str, Callable[..., int]] = {}
    records: dict[str, str] = {}
    for line in description.splitlines():
        kind, name, rest = line.split(" ", 2)
        if kind == "record":
            records[name] = rest
        else:
            letters, address = rest.split()
            functions[name] = ctypes.CFUNCTYPE(ctypes.c_int, *(LETTERS[letter] for letter in letters))(int(address))
    for record in RECORDS:
        if records.get(record.__name__) != described(record):
            raise NativeError(
                f"the native library's {record.__name__} is not the one this Python code fills in: the library was built from other "
                f"sources. Build it again: `python setup.py build_ext --inplace`, or reinstall regrow."
            )
    return functions


def _check_wish(wish: str | None, known: list[str]) -> None:
    if wish and wish not in known:
        raise NativeError(f"{unknown('instruction set in REGROW_ISA', wish, known)} (what this machine can run)")


def available() -> bool:
    """True if the native library was built."""
    return library_path() is not None


def instruction_set() -> str:
    """The table of kernels in use: the best that this machine can run, or the one that `REGROW_ISA` names."""
    return library().regrow_isa().decode()


def instruction_sets() -> list[str]:
    """All tables of kernels that this machine can run, best first."""
    return library().regrow_isas().decode().split()


def reads(x: torch.Tensor) -> bool:
    """Whether native code can work on a tensor's memory now: a known type, on the CPU, not while torch traces or transforms."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # first: torch.compile cannot trace the questions below
        return False
    if x.dtype not in SUFFIX or not x.is_cpu or not is_plain(x):
        return False
    return not transformed()


def transformed() -> bool:
    """Whether torch.func or forward-mode differentiation looks on, for which kernels have no rules."""
    return torch._C._functorch.maybe_current_level() is not None or forward_ad._current_level >= 0


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor's memory holds the numbers it shows: no wrapper of a compiler, no negated view."""
    return type(tensor) in _PLAIN and not tensor.is_neg()


def address(tensor: torch.Tensor) -> int:
    """Where a tensor's numbers are; an error for one that has none there, or others than it shows."""
    if not is_plain(tensor):
        raise TypeError(
            f"native kernels read plain tensors, not a {type(tensor).__name__} or a negated view: call handle.densify() first"
        )
    pointer = tensor.data_ptr()
    if not pointer and tensor.numel():
        raise ValueError(
            f"the memory of a tensor of shape {tuple(tensor.shape)} was given back (its storage was resized)"
        )
    return pointer


@functools.cache
def _functions() -> dict[str, Callable[..., int]]:
    return interface(library().regrow_abi().decode())


@functools.cache
def _function(name: str, dtype: torch.dtype) -> Callable[..., int]:
    if dtype not in SUFFIX:
        raise TypeError(
            f"native kernels compute in float32 or float64, not {dtype}; convert the input or use execution='masked'"
        )
    return _functions()[f"{name}_{SUFFIX[dtype]}"]


def call(name: str, dtype: torch.dtype, *arguments: object) -> None:
    """Call `regrow_<name>_<dtype>(*arguments, threads)`; tensors pass as pointers, None as null."""
    function = _function(name, dtype)
    plain = [address(value) if isinstance(value, torch.Tensor) else value for value in arguments]
    if status := function(*plain, torch.get_num_threads()):
        check(status, name)


def check(status: int, name: str) -> None:
    """Raise if a native function returned a failure."""
    if status:
        raise NativeError(f"native {name} failed: {_STATUS.get(status, status)}")
