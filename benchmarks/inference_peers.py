"""Inference beside ONNX Runtime and OpenVINO: the same masks for all, interleaved in one run; medians and 99th percentiles.

    pip install onnx onnxscript onnxruntime openvino
    python benchmarks/inference_peers.py [--model vgg16-d] [--density 0.05,0.1] [--batch 1,64] [--repeats 5] [--json FILE]

They get the network that `regrow export --to FILE.onnx` writes: batch norm folded, channels removed, dense weights with zeros. What is
not installed is left out, with a word. Where a hypervisor traps AMX instructions set ONEDNN_MAX_CPU_ISA=AVX512_CORE.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console

from regrow.allocator import keep_buffers
from regrow.bench import infer
from regrow.environment import describe
from regrow.execution.kernels import native
from regrow.shipping.formats import write_onnx

Candidates = dict[str, Callable[[], object]]


def onnx_runtime(path: Path, x: torch.Tensor) -> Callable[[], object]:
    """A call of ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feed = {"input": x.numpy()}
    return lambda: session.run(None, feed)


def openvino(path: Path, x: torch.Tensor) -> Callable[[], object]:
    """A call of OpenVINO, in float32 as everybody here."""
    import openvino as ov

    model = ov.Core().read_model(str(path))
    model.reshape(tuple(x.shape))
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": torch.get_num_threads()}
    request = ov.Core().compile_model(model, "CPU", settings).create_infer_request()
    array = x.numpy()
    return lambda: request.infer([array])


PEERS = {"ONNX Runtime": onnx_runtime, "OpenVINO": openvino}


def peers(console: Console) -> Callable[..., Candidates]:
    """Adds those that are installed to a measurement."""
    told: set[str] = set()

    def more(frozen: infer.Frozen, x: torch.Tensor) -> Candidates:
        found: Candidates = {}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "network.onnx"
            write_onnx(path, frozen, x[:1])
            for name, make in PEERS.items():
                try:
                    found[name] = make(path, x)
                except ImportError as error:
                    if name not in told:
                        console.print(f"{name} is left out: {error}", highlight=False)
                    told.add(name)
        return found

    return more


def main() -> None:
    """Measure, print, and write where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vgg16-d", help="comma-separated models, also `mlp`")
    parser.add_argument("--density", default="0.05,0.1")
    parser.add_argument("--batch", default="1,64")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_buffers()
    console = Console()
    about = describe() | {"instruction_set": native.instruction_set()}
    console.print(
        f"{about['processor']}, {about['instruction_set']}, {about['threads']} threads, torch {about['torch']}"
    )
    rows = []
    for model in options.model.split(","):
        for density in map(float, options.density.split(",")):
            for batch in map(int, options.batch.split(",")):
                rows.append(infer.measure(model, density, batch, options.repeats, compile=False, more=peers(console)))
                console.print(infer.line(rows[-1]), highlight=False, soft_wrap=True)
                if options.json:
                    options.json.write_text(json.dumps({"machine": about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
