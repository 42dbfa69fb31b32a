"""Weights that change their size while other threads compute."""

import threading

import pytest
import torch
from torch import nn

from regrow.vectors import changing, resize, still


def test_a_parameter_takes_values_of_any_size_and_old_graphs_are_refused():
    parameter = nn.Parameter(torch.ones(3))
    loss = parameter.square().sum()
    resize(parameter, torch.zeros(5))
    assert parameter.shape == (5,)
    assert parameter.grad is None
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_change_waits_for_passes_and_passes_wait_for_a_change():
    order, inside, begun = [], threading.Event(), threading.Event()

    def change():
        begun.set()
        with changing():
            order.append("change")
            with still():  # the thread that changes may compute
                order.append("pass within")

    def late():
        inside.wait()
        with still():
            order.append("late pass")

    with still():
        threads = [threading.Thread(target=work) for work in (change, late)]
        for thread in threads:
            thread.start()
        begun.wait()
        order.append("first pass")
        with changing():  # alone inside
            order.append("own change")
    threads[0].join()
    inside.set()
    threads[1].join()
    assert order == ["first pass", "own change", "change", "pass within", "late pass"]


def test_pairs_are_never_seen_half_changed():
    pair, seen = [0, 0], []

    def change():
        for number in range(1, 300):
            with changing():
                pair[0] = number
                pair[1] = number

    def look():
        while pair[1] < 299:
            with still():
                seen.append(pair[0] == pair[1])

    threads = [threading.Thread(target=work) for work in (change, look, look)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(seen)
