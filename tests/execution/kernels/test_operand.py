"""Supports as operands: programs that are right elsewhere."""

import gc
import io

import pytest
import torch
from torch import nn

import regrow
from regrow import native
from regrow.execution import Geometry, SparsePattern
from regrow.execution.kernels.operand import operand_of, support_of
from regrow.support import Support
from tests.misuse.child import python

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")

ELSEWHERE = """
import sys, torch, regrow.execution
from torch import nn
other = nn.Linear(6, 8); regrow.execution.attach(other, torch.rand(8, 6) < 0.5); other(torch.ones(1, 6))  # another pattern lives here
x, y = torch.load(sys.argv[2])
torch.testing.assert_close(torch.export.load(sys.argv[1]).module()(x), y)
"""


def support():
    return Support(torch.rand(5, 7, generator=torch.Generator().manual_seed(0)) < 0.4)


def test_an_operand_finds_its_support():
    mine = support()
    assert support_of(operand_of(mine), (5, 7)) is mine


def test_bits_from_elsewhere_are_unpacked_once():
    mine = support()
    bits = mine.bits.clone()
    found = support_of(bits, (5, 7))
    assert found is not mine
    assert torch.equal(found.mask, mine.mask)
    assert support_of(bits, (5, 7)) is found
    bits ^= 255
    assert torch.equal(support_of(bits, (5, 7)).mask, ~mine.mask)


def test_an_operand_does_not_keep_its_support_alive():
    mine = support()
    bits, version = operand_of(mine), mine.version
    del mine
    gc.collect()
    assert support_of(bits, (5, 7)).version != version


class Operator(nn.Module):
    """A layer that calls the sparse operator by itself."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(8, 6, 3, 3))
        pattern = SparsePattern(torch.rand(8, 6, 3, 3) < 0.3, Geometry((3, 3), (2, 2), (1, 1, 1, 1)))
        support, _, self.size, self.geometry = pattern.operands()
        self.register_buffer("support", support)

    def forward(self, x):
        return torch.ops.regrow.sparse_forward(x, self.weight, None, self.support, None, self.size, self.geometry)


def test_an_exported_operator_computes_the_same_in_another_process(tmp_path):
    model, x = Operator(), torch.randn(4, 6, 9, 9)
    torch.export.save(torch.export.export(model, (x,)), tmp_path / "program.pt2")
    torch.save((x, model(x).detach()), tmp_path / "numbers.pt")
    done = python("-c", ELSEWHERE, str(tmp_path / "program.pt2"), str(tmp_path / "numbers.pt"))
    assert done.returncode == 0, done.stderr


def trained(execution="sparse"):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32, 5)
    )
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    handle = regrow.sparsify(model, optimizer, density=0.2, steps=100, update_every=3, execution=execution)

    def step():
        optimizer.zero_grad()
        model(torch.randn(8, 3, 6, 6)).square().sum().backward()
        optimizer.step()

    return model, handle, step


@pytest.mark.parametrize("strict", [False, True])
def test_a_model_exported_with_its_handle_stays_right(strict):
    model, _, step = trained()
    step()
    model.eval()
    x = torch.randn(4, 3, 6, 6)
    expected = model(x).detach()
    program = torch.export.export(model, (x,), strict=strict)
    assert not any("regrow" in str(node.target) for node in program.graph.nodes)
    held = io.BytesIO()
    torch.export.save(program, held)
    model.train()
    for _ in range(9):
        step()
    held.seek(0)
    torch.testing.assert_close(torch.export.load(held).module()(x), expected)


def test_no_recompilation_after_topology_updates():
    model, handle, _ = trained()
    compiled = torch.compile(model, backend="aot_eager")
    graphs = torch._dynamo.utils.counters["stats"]
    optimizer, x = handle.optimizer, torch.randn(8, 3, 6, 6)
    seen = []
    for _ in range(14):
        optimizer.zero_grad()
        compiled(x).square().sum().backward()
        optimizer.step()
        seen.append(graphs["unique_graphs"])
    assert handle.updates >= 4
    assert seen[-1] == seen[7]
