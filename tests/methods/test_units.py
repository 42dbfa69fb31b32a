"""Units: which layers meet, and scores of units that nobody reads."""

import torch
from torch import nn

import regrow
from regrow.methods.units import as_read, junctions
from tests.support.views import update, view


def test_linear_layers_that_follow_each_other_meet():
    layers = [torch.ones(4, 1, 3, 3), torch.ones(5, 16), torch.ones(3, 5), torch.ones(2, 4)]
    assert junctions(update(*(view(weight) for weight in layers)).layers) == [1]


def test_a_unit_is_worth_no_more_than_what_is_read_of_it_through_all_layers():
    layers = update(view(torch.ones(2, 3)), view(torch.ones(2, 2)), view(torch.ones(1, 2))).layers
    scores = [torch.full((2, 3), 9.0), torch.tensor([[5.0, 1.0], [5.0, 1.0]]), torch.tensor([[4.0, -2.0]])]
    first, second, third = as_read(layers, scores)
    assert torch.equal(third, scores[2])
    assert second.tolist() == [[4.0, 1.0], [-2.0, -2.0]]
    assert first.tolist() == [[4.0] * 3, [1.0] * 3]
    assert scores[0].min() == 9, "what came in stays as it was"


def test_filters_are_read_at_every_position():
    layers = update(view(torch.ones(2, 1, 3, 3)), view(torch.ones(1, 8))).layers
    scores = [torch.ones(2, 1, 3, 3), torch.tensor([[0.1, 0.2, 0.3, 0.4, -1.0, -1.0, -3.0, -1.0]])]
    filters, _ = as_read(layers, scores)
    assert filters[0].unique().tolist() == [torch.tensor(0.4).item()]
    assert filters[1].unique().tolist() == [-1.0]


def test_a_cut_of_l0_keeps_whole_paths():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    sparse = regrow.sparsify(
        net, optimizer, "l0", steps=4, samples=100, density=0.25, budget="exact", finetune_steps=3, decay=0.0
    )
    with torch.no_grad():
        first, second = (side["log_alpha"] for side in sparse.trained.side.layers)
        first.copy_(torch.tensor([[3.0, 3, 3, -4, -4, -4]]))
        second.copy_(torch.tensor([[2.0, 2, -4, -4, -4, -4, -4, -4]]))
    net(torch.randn(5, 6)).square().sum().backward()
    optimizer.step()
    assert sparse.nonzeros == 18
    inputs, read = sparse.masks["0"], sparse.masks["2"]
    assert bool(inputs[:2, :3].all())
    assert bool(read[:, :2].all())
