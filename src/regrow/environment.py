"""Where a run happened: what a reader needs to judge its figures."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from pathlib import Path
from typing import Any

import torch

import regrow
from regrow import native


def describe() -> dict[str, Any]:
    """Versions, processor, threads."""
    return {
        "regrow": regrow.__version__,
        "code": code(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "kernels": kernels(),
        "instruction_set": native.instruction_set() if native.available() else None,
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
    }


def code() -> str:
    """Hash of the package's files, kernels included: tells states apart that have the same version."""
    home, digest = Path(regrow.__file__).parent, hashlib.sha256()
    for path in sorted(path for path in home.rglob("*") if path.suffix in (".py", ".so", ".css")):
        digest.update(str(path.relative_to(home)).encode() + path.read_bytes())
    return digest.hexdigest()[:10]


def machine() -> str:
    """The machine in a few words, for rows: processor, threads, kernels, torch."""
    return f"{processor_name()}, threads: {torch.get_num_threads()}, kernels {kernels()}, torch {torch.__version__}"


def processor_name() -> str:
    """The processor's name as the system gives it, with family and model: names like "AMD EPYC" stand for many."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().split("\n\n")[0].splitlines() if info.is_file() else ()
    found = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    name = found.get("model name") or platform.processor() or "unknown"
    return f"{name} (family {found['cpu family']}, model {found['model']})" if "cpu family" in found else name


def cores() -> int:
    """Cores that this process may use, as far as the system says."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def gpus() -> list[str]:
    """GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return given.split(",")[:count] if given else [str(number) for number in range(count)]


def kernels() -> str:
    """Which native kernels sparse execution would run here."""
    return (
        f"built, {native.instruction_set()}"
        if native.available()
        else "not built: sparse execution is off, masked works (needs a C++17 compiler)"
    )


def openmp_run_times() -> list[str]:
    """Files of the OpenMP run times in this process: more than one would fight for the cores. Empty where the system does not tell."""
    maps = Path("/proc/self/maps")
    files = (
        {line.split(maxsplit=5)[5] for line in maps.read_text().splitlines() if "/" in line} if maps.is_file() else ()
    )
    return sorted(file for file in files if re.match(r"lib(g|i)?omp\d?\b", Path(file).name))
