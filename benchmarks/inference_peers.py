"""Inference beside ONNX Runtime, OpenVINO and DeepSparse: the same masks for all, interleaved in one run; medians and 99th percentiles.

    python benchmarks/inference_peers.py [--model vgg16-d] [--density 0.05,0.1] [--batch 1,64] [--repeats 5] [--json FILE]
        [--onnxruntime PYTHON] [--openvino PYTHON] [--deepsparse PYTHON]

Each runs in a process of its own, with the interpreter of the environment that has it (by default this one; DeepSparse 1.8.0 needs
Python 3.11 or older: `pip install deepsparse==1.8.0 "numpy<2"`). They get the network that `regrow export --to FILE.onnx` writes: batch
norm folded, channels removed, dense weights with zeros. What is absent is left out, with a word. Where a hypervisor traps AMX
instructions set ONEDNN_MAX_CPU_ISA=AVX512_CORE.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from regrow.allocator import keep_buffers
from regrow.bench import infer
from regrow.environment import describe
from regrow.shipping.formats import write_onnx

WORKER = Path(__file__).with_name("inference_worker.py")
PEERS = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "deepsparse": "DeepSparse"}
_OPSET, _IR = 16, 8


class Worker:
    """A runtime in its process; calling it gives the seconds of one call there."""

    def __init__(self, python: str, name: str, path: Path, given: Path) -> None:
        command = [python, str(WORKER), name, str(path), str(given), str(torch.get_num_threads())]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        self.state, _, self.about = self.process.stdout.readline().strip().partition(" ")

    def __call__(self) -> float:
        """Ask for one call."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def end(self) -> None:
        """No more calls."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(10)


class Peers:
    """The runtimes beside one measurement."""

    def __init__(self, console: Console, pythons: dict[str, str]) -> None:
        self.console, self.pythons = console, pythons
        self.told: set[str] = set()
        self.running: list[Worker] = []
        self.versions: dict[str, str] = {}

    def start(self, frozen: infer.Frozen, x: torch.Tensor) -> infer.Candidates:
        """Those that can be had, on a network and a batch."""
        found: infer.Candidates = {}
        with tempfile.TemporaryDirectory() as folder:
            path, given = Path(folder) / "network.onnx", Path(folder) / "input.npy"
            write_onnx(path, frozen, x[:1])
            _make_older(path)
            np.save(given, x.numpy())
            for name, title in PEERS.items():
                worker = Worker(self.pythons[name], name, path, given)
                if worker.state == "ready":
                    self.running.append(worker)
                    found[title] = worker
                    self.versions[title] = worker.about
                    continue
                worker.end()
                if name not in self.told:
                    self.told.add(name)
                    self.console.print(f"{title} is left out: {worker.about or 'it ended'}", highlight=False)
        return found

    def end(self) -> None:
        """End all processes."""
        while self.running:
            self.running.pop().end()


def _make_older(path: Path) -> None:
    """In the versions of ONNX that DeepSparse reads; these networks need nothing newer."""
    import onnx
    import onnx.version_converter

    proto = onnx.version_converter.convert_version(onnx.load(str(path)), _OPSET)
    for node in proto.graph.node:
        for attribute in [a for a in node.attribute if a.name == "noop_with_empty_axes"]:  # the converter leaves it
            node.attribute.remove(attribute)
    proto.ir_version = _IR
    onnx.save(proto, str(path))


def main() -> None:
    """Measure, print, and write where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vgg16-d", help="comma-separated models, also `mlp`")
    parser.add_argument("--density", default="0.05,0.1")
    parser.add_argument("--batch", default="1,64")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    for name in PEERS:
        parser.add_argument(f"--{name}", default=sys.executable, metavar="PYTHON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_buffers()
    console = Console()
    about = describe()
    console.print(
        f"{about['processor']}, {about['instruction_set']}, {about['threads']} threads, torch {about['torch']}"
    )
    peers = Peers(console, {name: getattr(options, name) for name in PEERS})
    rows = []
    for model in options.model.split(","):
        for density in map(float, options.density.split(",")):
            for batch in map(int, options.batch.split(",")):
                rows.append(infer.measure(model, density, batch, options.repeats, compile=False, more=peers.start))
                peers.end()
                console.print(infer.line(rows[-1]), highlight=False, soft_wrap=True)
                if options.json:
                    found = {"machine": about, "versions": peers.versions, "rows": rows}
                    options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
