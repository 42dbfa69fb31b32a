"""Several processes: a script that forks its ranks, which join through torchrun's environment variables.

    python -m tests.training.ranks WORK WORLD TASK

``resume`` trains once in peace, and once with one rank killed on the way and the same command repeated; ``traffic`` sends gradients
through the sparse hook and through plain data parallelism. Prints one JSON object.
"""

import json
import os
import re
import signal
import socket
import sys
import traceback
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

import regrow
from regrow import native
from regrow.config import Sparse
from regrow.training import processes as groups
from regrow.training.ledger import read_rows
from regrow.training.main import train
from regrow.training.run import Run
from regrow.training.traffic import SparseTraffic
from tests.training import tiny


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def fork(world, log, work):
    """Run ``work(rank)`` in so many processes; when one dies, the others are killed, as torchrun does. The exit codes."""
    port, children = str(free_port()), {}
    for rank in range(world):
        child = os.fork()
        if not child:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            descriptor = os.open(f"{log}-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
            try:
                os._exit(work(rank) or 0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        children[child] = rank
    codes = {}
    while children:
        child, status = os.wait()
        codes[children.pop(child)] = os.waitstatus_to_exitcode(status)
        if status:
            for other in children:
                os.kill(other, signal.SIGKILL)
    return [codes[rank] for rank in range(world)]


def killed_at(step, victim):
    """Training in which one rank dies before a step."""

    def work(config, folder, rank):
        original = Run._train_step

        def fatal(run, *batch):
            if rank == victim and run.step == step:
                os.kill(os.getpid(), signal.SIGKILL)
            original(run, *batch)

        Run._train_step = fatal
        return train(config, folder)

    return work


def resume(work, world, execution="masked"):
    """Batches of 21 samples, the last of an epoch smaller, over ranks that share them unevenly."""
    sparse = Sparse("sparse-momentum", 0.3, update_every=3, window_tolerance=0.5, execution=execution)
    data = tiny.write_data(work / "data.npz")
    config = tiny.config(data, sparse=sparse, checkpoint_seconds=0.01, log_every=3)
    config = replace(config, data=replace(config.data, batch=21))
    codes = fork(world, work / "whole", lambda rank: train(config, work / "whole"))
    assert codes == [0] * world, codes
    # Early, and between some checkpoint and the end: the ranks agree on when to save.
    for step, victim in ((5, world - 1), (27, 0)):
        codes = fork(world, work / "killed", lambda rank: killed_at(step, victim)(config, work / "killed", rank))  # noqa: B023
        assert codes[victim] == -signal.SIGKILL, codes
    codes = fork(world, work / "killed", lambda rank: train(config, work / "killed"))
    assert codes == [0] * world, codes
    single = fork(1, work / "single", lambda rank: train(config, work / "single"))
    assert single == [0]
    result = json.loads((work / "whole" / "result.json").read_text())
    return {
        "resumed": [int(step) for step in re.findall(r"resuming at step (\d+)", (work / "killed-0.log").read_text())],
        "whole": tiny.digests(work / "whole"),
        "killed": tiny.digests(work / "killed"),
        "leftovers": tiny.leftovers(work / "whole") + tiny.leftovers(work / "killed"),
        "loss": result["test_loss"],
        "single": json.loads((work / "single" / "result.json").read_text())["test_loss"],
        "speed": {name: read_rows(work / name / "speed.jsonl") for name in ("whole", "killed")},
        "weights": {
            "all": sum(p.numel() for p in tiny.tiny_net().parameters()),
            "sparse": result["weights"],
            "nonzeros": result["nonzeros"],
        },
    }


def resume_sparse(work, world):
    return resume(work, world, "sparse")


def gradients(world, rank, sparse_traffic, steps=4, switches=False):
    """Gradients and bytes of some steps with masks, on this rank's own data; with ``switches`` the execution changes meanwhile."""
    torch.manual_seed(0)
    network = tiny.tiny_net().to(memory_format=torch.channels_last).eval()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    handle = regrow.sparsify(network, optimizer, "rigl", density=0.2, steps=100, update_every=3)
    wrapped = nn.parallel.DistributedDataParallel(network)
    traffic = SparseTraffic(handle)
    if sparse_traffic:
        traffic.attach(wrapped)
    found, sent = [], []
    for step in range(steps):
        if switches and step == 2:
            handle.execute("sparse")
        images = torch.randn(5, 1, 12, 12, generator=torch.Generator().manual_seed(100 * rank + step))
        optimizer.zero_grad()
        before, window = traffic.sent, handle.needs_missing_gradients
        wrapped(images).square().mean().backward()
        found.append([p.grad.flatten().tolist() for p in network.parameters()])
        expected = 4 * (sum(p.numel() for p in network.parameters()) - handle.numel + handle.nonzeros)
        sent.append([traffic.sent - before, expected + 4 * handle.numel * window])
        optimizer.step()
    return found, sent, traffic.dense


def traffic(work, world):
    def work_of(rank):
        groups.join()
        found = {}
        for switches in (False, True)[: 1 + native.available()]:
            plain, _, _ = gradients(world, rank, False, 6, switches)
            packed, sent, dense = gradients(world, rank, True, 6, switches)
            flat, other = ([v for step in run for grad in step for v in grad] for run in (packed, plain))
            worst = max(abs(a - b) for a, b in zip(flat, other, strict=True))
            found["switched" if switches else "kept"] = {
                "worst": worst,
                "sent": sent,
                "dense": dense,
                "nonzero": any(flat),
            }
        (work / f"{rank}.json").write_text(json.dumps(found))
        groups.leave()

    codes = fork(world, work / "traffic", work_of)
    assert codes == [0] * world, codes
    return {"ranks": [json.loads((work / f"{rank}.json").read_text()) for rank in range(world)]}


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    print(json.dumps(globals()[sys.argv[3]](Path(sys.argv[1]), int(sys.argv[2]))))
