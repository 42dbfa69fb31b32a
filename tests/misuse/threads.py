"""One model, several Python threads: `python -m tests.misuse.threads infer|train SEED`, a process of its own that may crash."""

import random
import sys
import threading

import torch
from torch import nn

import regrow

METHODS = ["set", "rigl", "sparse-momentum", "top-kast", "static", "deep-r"]
STORED_COMPACT = ["set", "rigl", "sparse-momentum", "static"]


def linear_net():
    return nn.Sequential(nn.Linear(64, 80), nn.ReLU(), nn.Linear(80, 40), nn.ReLU(), nn.Linear(40, 10)), (64,)


def conv_net():
    layers = (nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32, 10)), (3, 8, 8)


def sparse_net(seed, double=False):
    """Every third one, beginning with the third, is stored compact: its weights change their size while others compute."""
    storage = "compact" if seed % 3 == 2 else "dense"
    method = random.Random(seed).choice(STORED_COMPACT if storage == "compact" else METHODS)
    torch.manual_seed(seed)
    net, shape = linear_net() if seed % 2 else conv_net()
    net = net.double() if double else net
    optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
    options = {"density": 0.2, "steps": 1000, "update_every": 5, "execution": "sparse", "storage": storage}
    handle = regrow.sparsify(net, optimizer, method, **options)
    return net, optimizer, handle, shape


def together(workers):
    """Run all at once; raise what any of them raised."""
    errors, barrier = [], threading.Barrier(len(workers))

    def run(work):
        try:
            barrier.wait()
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def infer(seed):
    """Four threads infer from the first use on: every answer is that of a thread alone, and the dense one up to rounding."""
    net, _, handle, shape = sparse_net(seed, double=True)
    net.eval()
    inputs = [torch.randn(8 + i, *shape, dtype=torch.float64) for i in range(4)]
    answers = [[] for _ in inputs]

    def work(i):
        with torch.no_grad():
            answers[i] += [net(inputs[i]) for _ in range(40)]

    together([lambda i=i: work(i) for i in range(4)])
    with torch.no_grad():
        alone = [net(x) for x in inputs]
        handle.densify()
        dense = [net(x) for x in inputs]
    for mine, right, about in zip(answers, alone, dense, strict=True):
        torch.testing.assert_close(right, about)
        assert len(mine) == 40
        assert all(torch.equal(y, right) for y in mine)


def trained(seed, others):
    """Weights after 60 steps, with other threads that evaluate meanwhile."""
    net, optimizer, handle, shape = sparse_net(seed)
    generator = torch.Generator().manual_seed(seed)
    batches = [(torch.randn(16, *shape, generator=generator), torch.arange(16) % 10) for _ in range(60)]
    done, seen = threading.Event(), []
    net.eval()  # running statistics belong to one thread

    def train():
        try:
            for x, y in batches:
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(x), y).backward()
                optimizer.step()
        finally:
            done.set()

    def evaluate():
        with torch.no_grad():
            while not done.is_set():
                seen.append(bool(net(batches[0][0]).isfinite().all()))

    together([train] + [evaluate] * others)
    assert all(seen)
    assert handle.updates > 0 or handle.method.name == "static"
    with torch.no_grad():
        sparse = net(batches[0][0])
        handle.densify()
        torch.testing.assert_close(sparse, net(batches[0][0]), rtol=1e-4, atol=1e-5)
    return [p.detach().clone() for p in net.parameters()]


def train(seed):
    """One thread trains, three evaluate: the training is that of a thread alone, bit for bit."""
    for watched, alone in zip(trained(seed, 3), trained(seed, 0), strict=True):
        assert torch.equal(watched, alone)


if __name__ == "__main__":
    torch.set_num_threads(1 + int(sys.argv[2]) % 2)
    {"infer": infer, "train": train}[sys.argv[1]](int(sys.argv[2]))
