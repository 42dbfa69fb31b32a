"""Does AMX work here? A child process that multiplies in bfloat16 tells; the answer is kept per machine."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from regrow.amx import NAMES, VARIABLE, announced, processor
from regrow.files import cache_root, write_atomically

LIMITS = ("AVX512_CORE_BF16", "AVX512_CORE")
SECONDS = 120.0
SUCCESS = "products are right"
_PROGRAM = f"""
import torch
from torch.nn import functional
x, w = torch.randn(64, 64), torch.randn(64, 64, requires_grad=True)
image, kernel = torch.randn(4, 16, 12, 12), torch.randn(32, 16, 3, 3, requires_grad=True)
for function, inputs, weight in ((functional.linear, x, w), (functional.conv2d, image, kernel)):
    half = function(inputs.bfloat16(), weight.bfloat16())
    half.sum().backward()
    assert torch.allclose(half.float(), function(inputs, weight), rtol=0.1, atol=1.0), "a bfloat16 product is wrong"
print("{SUCCESS}")
"""
COMMAND = (sys.executable, "-c", _PROGRAM)
log = logging.getLogger("regrow")


@dataclass(frozen=True)
class Verdict:
    """What the child found: the limit that is needed (None: none), and how products failed without it."""

    limit: str | None
    failure: str = ""

    def __str__(self) -> str:
        if self.limit is None:
            return "AMX is announced, and torch's bfloat16 products work"
        return (
            f"AMX is announced but bfloat16 products end with {self.failure}: torch is limited by "
            f"{VARIABLE}={self.limit} (set {VARIABLE} yourself to decide otherwise)"
        )


def describe() -> str:
    """What ``regrow doctor`` says."""
    if not announced():
        return "not announced by this processor"
    verdict = known()
    given = next((f"{name}={os.environ[name]}" for name in NAMES if name in os.environ), None)
    if given is not None and (verdict is None or given != f"{VARIABLE}={verdict.limit}"):
        return f"announced; torch is limited by your {given}"
    return str(verdict) if verdict else "announced, could not be tried"


def known() -> Verdict | None:
    """What an earlier process found on this machine."""
    try:
        verdict = Verdict(**json.loads(_cache().read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return verdict if verdict.limit in (None, *LIMITS) else None


def probe() -> Verdict | None:
    """Try without a limit, then with each; keep what was found. None where no limit helps: then AMX is not to blame."""
    failure = _failure(None)
    verdict = Verdict(None)
    if failure:
        limit = next((limit for limit in LIMITS if not _failure(limit)), None)
        if limit is None:
            log.warning("bfloat16 products fail on this machine under every instruction set tried: %s", failure)
            return None
        verdict = Verdict(limit, failure)
    _keep(verdict)
    return verdict


def _failure(limit: str | None) -> str:
    """How the child fails under a limit; empty where it does not."""
    environment = {key: value for key, value in os.environ.items() if key not in NAMES}
    if limit:
        environment[VARIABLE] = limit
    try:
        done = subprocess.run(COMMAND, capture_output=True, text=True, env=environment, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer in {SECONDS:g} s"
    except OSError as error:
        return str(error)
    if done.returncode < 0:
        return signal.Signals(-done.returncode).name
    if done.returncode or SUCCESS not in done.stdout:
        return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return ""


def _keep(verdict: Verdict) -> None:
    path = _cache()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(asdict(verdict)).encode())
    except OSError as error:
        log.warning("what was found of AMX was not kept: %s; the next process tries again", error)


def _cache() -> Path:
    """A file per processor, kernel and torch: what decides whether AMX works."""
    about = processor()
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = "unknown"
    parts = (about.get("model name", ""), about.get("flags", ""), platform.release(), torch)
    return cache_root() / f"amx-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:16]}.json"
