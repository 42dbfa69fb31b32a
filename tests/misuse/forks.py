"""A model that was used, then forked: workers of a DataLoader, a child while another thread computes. A process of its own.

python -m tests.misuse.forks STORAGE
"""

import os
import sys
import threading

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import regrow


class Answers(Dataset):
    """What the model says of each input, computed where it is asked for."""

    def __init__(self, model, inputs):
        self.model, self.inputs = model, inputs

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, place):
        with torch.no_grad():
            return self.model(self.inputs[place : place + 1])[0]


def started(storage):
    """A network that has trained over a topology update, its optimizer, and inputs."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 10), nn.Tanh(), nn.Linear(10, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    regrow.sparsify(model, optimizer, "set", density=0.3, steps=40, update_every=2, execution="sparse", storage=storage)
    inputs = torch.randn(24, 20)
    train(model, optimizer, inputs, 3)
    return model, optimizer, inputs


def train(model, optimizer, inputs, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(inputs).square().sum().backward()
        optimizer.step()


def child_agrees(model, optimizer, inputs):
    """Whether a child, forked while another thread computes, trains on to the same bits as its parent."""
    begun, enough = threading.Event(), threading.Event()

    def compute():
        with torch.no_grad():
            while not enough.is_set():
                model(inputs)
                begun.set()

    thread = threading.Thread(target=compute)
    thread.start()
    begun.wait()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        train(model, optimizer, inputs, 5)
        os.write(writing, model(inputs).detach().numpy().tobytes())
        os._exit(0)
    enough.set()
    thread.join()
    os.close(writing)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    train(model, optimizer, inputs, 5)
    with os.fdopen(reading, "rb") as answer:
        return answer.read() == model(inputs).detach().numpy().tobytes()


def main(storage):
    torch.set_num_threads(1)
    model, optimizer, inputs = started(storage)
    with torch.no_grad():
        expected = model(inputs)
    workers = DataLoader(Answers(model, inputs), batch_size=6, num_workers=2, multiprocessing_context="fork")
    torch.testing.assert_close(torch.cat(list(workers)), expected)
    assert child_agrees(model, optimizer, inputs)


if __name__ == "__main__":
    main(*sys.argv[1:])
