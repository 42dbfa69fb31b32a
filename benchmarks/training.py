"""Speed of the training program, everything side by side in one run.

    python benchmarks/training.py [--json FILE] [--epochs 3] [--blocks 12] [--skip-allocation]

1. LeNet-300-100 with the paper's settings (540 steps of batch 100 an epoch, 5% of the weights, masked and sparse execution) on one core:
   seconds for 100 epochs, extrapolated from whole measured epochs (their fastest and median) with evaluation, rows and checkpoints.
2. What the loop adds: `Run`'s step with data, schedule, seeds and metrics, against forward + backward + optimizer step alone on batches
   at hand, in alternating blocks; and what masks add over a dense step.
3. Allocation: a dense VGG16-D step (batch 128) with glibc's default thresholds and with `keep_buffers()`, in alternating processes.

Other programs on the machine disturb all of these: the fastest block is the best estimate of a quiet machine, ratios compare blocks that
lie next to each other in time. Processor seconds leave out the time other programs had the core, not what they did to caches and memory.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BLOCK = 50


def main() -> None:
    """Measure, print, and write where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--data", default="mnist", help="mnist, or mnist-sample where it cannot be fetched")
    parser.add_argument("--skip-allocation", action="store_true")
    parser.add_argument("--one-allocation", choices=("default", "kept"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one_allocation:
        print(json.dumps(dense_steps(options.one_allocation == "kept")))
        return
    import torch

    torch.set_num_threads(1)
    from regrow.allocator import keep_buffers
    from regrow.environment import describe

    keep_buffers()
    results = {"environment": describe()}
    with tempfile.TemporaryDirectory() as folder:
        for execution in ("masked", "sparse"):
            results[f"lenet300_{execution}"] = whole_epochs(Path(folder), options.data, options.epochs, execution)
        results["loop"] = loop_overhead(Path(folder), options.data, options.blocks)
    if not options.skip_allocation:
        results["allocation"] = allocation()
    print(json.dumps(results, indent=1))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


def make_run(folder: Path, name: str, data: str, **settings: str):
    """A run with the paper's settings for LeNet-300-100."""
    from regrow import config, presets
    from regrow.training.run import Run

    chosen = {"threads": "1", "data.name": data, **settings}
    return Run(config.override(presets.find("mnist-lenet300"), chosen), folder / name)


def whole_epochs(folder: Path, data: str, epochs: int, execution: str) -> dict:
    """Seconds of whole epochs: training, validation, rows, growth windows, topology updates, a checkpoint a minute."""
    run = make_run(folder, f"epochs-{execution}", data, execution=execution)
    marks: list[tuple[float, float]] = []

    class Clock:
        def row(self, run, row):
            if row["kind"] == "validation":
                marks.append((time.perf_counter(), time.process_time()))
                run.stop_requested = len(marks) > epochs

        def __getattr__(self, name):
            return lambda *_: None

    run.view = Clock()
    run.train()
    seconds, processor = ([b[i] - a[i] for a, b in itertools.pairwise(marks)] for i in (0, 1))
    scale = 54_000 / run.steps_per_epoch
    return {
        "epochs_measured": len(seconds),
        "steps_per_epoch": run.steps_per_epoch,
        "seconds_for_54000_steps_fastest": min(seconds) * scale,
        "seconds_for_54000_steps_median": statistics.median(seconds) * scale,
        "processor_seconds_for_54000_steps_fastest": min(processor) * scale,
        "processor_seconds_for_54000_steps_median": statistics.median(processor) * scale,
    }


def loop_overhead(folder: Path, data: str, blocks: int) -> dict:
    """Microseconds per step of the whole loop, of the bare step with masks, and of a dense bare step."""
    loop, bare, dense = (
        make_run(folder, n, data, **o) for n, o in (("loop", {}), ("bare", {}), ("dense", {"method": "dense"}))
    )
    batches = list(itertools.islice(bare._batches(), BLOCK))
    stream = itertools.chain.from_iterable(iter(loop._batches, None))
    kinds = {
        "loop": lambda: whole_steps(loop, stream),
        "bare": lambda: bare_steps(bare, batches),
        "dense": lambda: bare_steps(dense, batches),
    }
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(blocks):
        for kind, block in kinds.items():
            began = time.perf_counter()
            block()
            times[kind].append((time.perf_counter() - began) / BLOCK * 1e6)
    fastest = {f"{kind}_microseconds": min(found) for kind, found in times.items()}
    ratios = [a / b for a, b in zip(times["loop"], times["bare"], strict=True)]
    return {
        "blocks": blocks,
        "steps_per_block": BLOCK,
        **fastest,
        "loop_over_bare_fastest": min(times["loop"]) / min(times["bare"]),
        "loop_over_bare_median": statistics.median(ratios),
        "masks_over_dense_fastest": min(times["bare"]) / min(times["dense"]),
    }


def whole_steps(run, stream) -> None:
    """Steps as the program makes them."""
    for images, labels in itertools.islice(stream, BLOCK):
        run._train_step(images, labels)
        run._housekeeping()


def bare_steps(run, batches) -> None:
    """Forward, loss, backward and the optimizer's step, no more."""
    import torch

    network, optimizer = run.parts.network, run.parts.optimizer
    for images, labels in batches:
        loss = torch.nn.functional.cross_entropy(network(images), labels)
        for parameter in run._parameters:
            parameter.grad = None
        loss.backward()
        optimizer.step()


def allocation(repeats: int = 2) -> dict:
    """Seconds of a dense VGG16-D step without and with kept buffers."""
    found: dict[str, list[float]] = {"default": [], "kept": []}
    for _ in range(repeats):
        for kind, times in found.items():
            done = subprocess.run([sys.executable, __file__, "--one-allocation", kind], capture_output=True, text=True)
            times += json.loads(done.stdout)
    best = {kind: min(times) for kind, times in found.items()}
    return {
        "steps_per_kind": len(found["kept"]),
        "default_seconds": best["default"],
        "kept_seconds": best["kept"],
        "default_over_kept_fastest": best["default"] / best["kept"],
        "default_over_kept_median": statistics.median(found["default"]) / statistics.median(found["kept"]),
    }


def dense_steps(keep: bool, steps: int = 4) -> list[float]:
    """Seconds of some dense steps of VGG16-D, after one to warm up."""
    from regrow.allocator import keep_buffers

    if keep:
        keep_buffers()
    import torch

    from regrow import models

    network = models.create("vgg16-d", seed=0).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, nesterov=True, fused=True)
    images = torch.randn(128, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(10, (128,))
    seconds = []
    for _ in range(steps + 1):
        began = time.perf_counter()
        loss = torch.nn.functional.cross_entropy(network(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - began)
    return seconds[1:]


if __name__ == "__main__":
    main()
