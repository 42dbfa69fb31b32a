"""The native library: found beside the package, loaded after torch (one OpenMP run time), its results checked."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path

import torch

SUFFIX = {torch.float32: "f32", torch.float64: "f64"}
_STATUS = {1: "out of memory", 2: "unexpected failure"}


class NativeError(RuntimeError):
    """The native library is missing or reported a failure."""


@functools.cache
def library_path() -> Path | None:
    """The library beside the package, or None if it was not built."""
    path = Path(__file__).parent.parent / "_kernels.abi3.so"
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
    loaded.regrow_isa.restype = ctypes.c_char_p
    loaded.regrow_plan_free.restype = None
    loaded.regrow_plan_free.argtypes = [ctypes.c_void_p]
    return loaded


def available() -> bool:
    """True if the native library was built."""
    return library_path() is not None


def instruction_set() -> str:
    """`avx2` or `generic`: what the kernels use on this machine (`REGROW_ISA=generic` forces the latter)."""
    return library().regrow_isa().decode()


def reads(x: torch.Tensor) -> bool:
    """Whether native code can work on a tensor's memory now: a known type, on the CPU, not while torch.compile or torch.jit traces."""
    return x.dtype in SUFFIX and x.is_cpu and not torch.compiler.is_compiling() and not torch.jit.is_tracing()


# What each function takes before the number of threads: p a pointer (tensor, plan, structure, None), n a 64-bit count, i int, d double.
_SIGNATURES = {
    "forward": "ppppnpppn",
    "backward": "ppppppnpppnnn",
    "stack_forward": "pipn",
    "stack_backward": "pippn",
    "transpose": "pnnp",
    "bernoulli": "pdpn",
    "scale_kept": "ppdpn",
    "keep_present": "ppn",
    "load_images": "p",
    "channel_statistics": "pnnpp",
    "scale_shift": "ppppnni",
    "norm_backward": "pppppppppnni",
    "max_pool": "ppppn",
    "max_pool_backward": "ppppn",
    "sgd": "pi",
    "adamw": "pi",
}
_TYPES = {"p": ctypes.c_void_p, "n": ctypes.c_int64, "i": ctypes.c_int, "d": ctypes.c_double}


@functools.cache
def _function(name: str, dtype: torch.dtype) -> Callable[..., int]:
    if dtype not in SUFFIX:
        raise TypeError(
            f"native kernels compute in float32 or float64, not {dtype}; convert the input or use execution='masked'"
        )
    function = getattr(library(), f"regrow_{name}_{SUFFIX[dtype]}")
    function.argtypes = [*(_TYPES[kind] for kind in _SIGNATURES[name]), ctypes.c_int]
    return function


def call(name: str, dtype: torch.dtype, *arguments: object) -> None:
    """Call `regrow_<name>_<dtype>(*arguments, threads)`; tensors pass as pointers, None as null."""
    function = _function(name, dtype)
    plain = [value.data_ptr() if isinstance(value, torch.Tensor) else value for value in arguments]
    if status := function(*plain, torch.get_num_threads()):
        check(status, name)


def check(status: int, name: str) -> None:
    """Raise if a native function returned a failure."""
    if status:
        raise NativeError(f"native {name} failed: {_STATUS.get(status, status)}")
