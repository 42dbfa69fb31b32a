"""One inference runtime in a process of its own: `inference_peers.py` starts it, in whatever environment has that runtime.

    python inference_worker.py onnxruntime|openvino|deepsparse NETWORK.onnx INPUT.npy THREADS

It says `ready` with its version, or `absent` with the reason; then every line on its input is answered with the seconds of one call.
"""

import os
import sys
import time

import numpy as np

REST = 0.02
"""Seconds in which the threads of whoever was measured before go to sleep."""


def onnxruntime(path, x, threads):
    """A call of ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = {"input": x}
    return onnxruntime.__version__, lambda: session.run(None, feed)


def openvino(path, x, threads):
    """A call of OpenVINO, in float32 as everybody here."""
    import openvino

    model = openvino.Core().read_model(path)
    model.reshape(tuple(x.shape))
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
    request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
    return openvino.__version__, lambda: request.infer([x])


def deepsparse(path, x, threads):
    """A call of DeepSparse; it reports nothing to anybody."""
    os.environ["NM_DISABLE_ANALYTICS"] = "True"
    import deepsparse

    engine = deepsparse.Engine(path, batch_size=len(x), num_cores=threads)
    return deepsparse.__version__, lambda: engine.run([x])


def main():
    """Answer until the input ends."""
    name, path, given, threads = sys.argv[1:]
    answers, sys.stdout = sys.stdout, sys.stderr  # runtimes print
    try:
        version, call = {"onnxruntime": onnxruntime, "openvino": openvino, "deepsparse": deepsparse}[name](
            path, np.load(given), int(threads)
        )
        call()
    except Exception as error:
        print("absent", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}", file=answers, flush=True)
        return
    print("ready", version, file=answers, flush=True)
    for _ in sys.stdin:
        time.sleep(REST)
        call()
        begin = time.perf_counter()
        call()
        print(time.perf_counter() - begin, file=answers, flush=True)
        time.sleep(REST)


if __name__ == "__main__":
    main()
