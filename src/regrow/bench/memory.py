"""Peak memory of one arm: the resident high-water mark of a fresh process that runs nothing else.

``getrusage``'s maximum would not do: Linux hands the parent's on to the child. ``VmHWM`` belongs to the process's own memory.
Subtracted is what is resident before the arm is built: Python, torch, the package, and what a first step of a small layer loads.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

_STATUS = Path("/proc/self/status")


def resident(field: str) -> float | None:
    """``VmHWM`` or ``VmRSS`` of this process in MB; None where the system does not tell."""
    for line in _STATUS.read_text().splitlines() if _STATUS.is_file() else ():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    return None


def peak_mb(arm: dict[str, Any]) -> float | None:
    """MB that two steps of an arm need beyond an idle process; ``arm`` names what to build (see `build`)."""
    found = measured(arm)
    return None if found is None else found["peak_mb"]


def measured(arm: dict[str, Any]) -> dict[str, Any] | None:
    """The peak of an arm in a process of its own and, where asked (``account``), the bytes of its parts.

    None where the system does not tell.
    """
    if resident("VmHWM") is None:
        return None
    command = [sys.executable, "-m", "regrow.bench.memory", json.dumps(arm)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"measuring the memory of {arm} failed: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.splitlines()[-1])


def build(arm: dict[str, Any]) -> Any:
    """The arm of a layer (``layer``: a step) or of a model (``model``: see `arms.Arm`)."""
    if "layer" in arm:
        from regrow.bench.layers import Case, LayerSpec, candidates

        return candidates(Case(LayerSpec(**arm["layer"]), arm["density"]), {arm["name"]})[arm["name"]]
    from regrow.bench.arms import single_arm

    return single_arm(arm)


def main(text: str) -> None:
    """Run an arm and print its peak."""
    import torch

    import regrow.bench.arms
    import regrow.bench.layers  # noqa: F401
    from regrow.allocator import keep_buffers

    arm = json.loads(text)
    torch.set_num_threads(arm["threads"])
    keep_buffers()
    _warm_up()
    before = resident("VmRSS") or 0.0
    built = build(arm)
    step = built if "layer" in arm else built.step
    step()
    step()
    found: dict[str, Any] = {"peak_mb": (resident("VmHWM") or 0.0) - before}
    if arm.get("account"):
        from regrow.memory import account

        handle = getattr(built, "handle", None)
        network = None if handle is None else handle.network
        found["parts"] = account(built.model, built.optimizer, network, built.x).as_dict()
    print(json.dumps(found))


def _warm_up() -> None:
    """One dense step of a small layer: code and threads that every arm needs."""
    import torch

    layer = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    torch.nn.functional.cross_entropy(layer(torch.zeros(8, 8)), torch.zeros(8, dtype=torch.int64)).backward()
    optimizer.step()


if __name__ == "__main__":
    main(sys.argv[1])
