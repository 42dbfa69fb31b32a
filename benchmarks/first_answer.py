"""From nothing to a network's first answer, beside importing torch and reading the file: fresh processes, in turns.

python benchmarks/first_answer.py [--model vgg16-d] [--density 0.05] [--repeats 7] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

import regrow
from regrow.bench import infer
from regrow.environment import describe

READ = "import sys, torch; data = open(sys.argv[1], 'rb').read(); torch.zeros(1)"
ANSWER = "import sys, torch, regrow; x = torch.zeros(1, *map(int, sys.argv[2:])); regrow.load(sys.argv[1])(x)"


def seconds(code: str, path: Path, shape: list[int]) -> float:
    """Of a process, from its start to its end."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code, str(path), *map(str, shape)], check=True)
    return time.perf_counter() - begin


def main() -> None:
    """Measure, print, store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vgg16-d")
    parser.add_argument("--density", type=float, default=0.05)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    model, sizes = infer.build(options.model)
    shape = list(sizes)
    taken: dict[str, list[float]] = {"torch and file": [], "first answer": []}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.safetensors"
        regrow.save(
            path, model, infer.present(model, options.density), architecture=options.model, about={"input_shape": shape}
        )
        for _ in range(options.repeats + 1):
            taken["torch and file"].append(seconds(READ, path, shape))
            taken["first answer"].append(seconds(ANSWER, path, shape))
    # The first of each fills the system's caches.
    ratios = [ours / base for base, ours in zip(*(times[1:] for times in taken.values()), strict=True)]
    middle = {name: statistics.median(times[1:]) for name, times in taken.items()}
    row = {"model": options.model, "density": options.density, "seconds": middle, "ratios": ratios}
    spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} .. {max(ratios):.2f}, n = {len(ratios)})"
    times = ", ".join(f"{name} {value:.2f} s" for name, value in middle.items())
    Console().print(f"{options.model} {options.density:.0%}: {times}; ratio {spread}")
    if options.json:
        options.json.write_text(json.dumps({"machine": describe(), "rows": [row]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
