"""ITOP: rare updates to the end, fresh positions first, the ever-active share."""

import pytest
import torch

from regrow.errors import ConfigurationError
from regrow.methods import build
from tests.support.manual import Manual
from tests.support.views import update, view


def test_growth_by_gradient_or_at_random():
    weight, mask = torch.arange(1.0, 9), torch.arange(8) < 4
    gradient = torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0, 9.0, -8.0, 2.0])
    work = update(view(weight * mask, mask, gradient=gradient), rate=0.5)
    assert build("itop", {}).update(work).grown[0].nonzero().squeeze(1).tolist() == [5, 6]
    assert build("itop", {"growth": "random"}).when.every == 1500
    assert build("itop", {}).when.every == 4000
    with pytest.raises(ConfigurationError, match="did you mean 'random'"):
        build("itop", {"growth": "randomly"})


def test_never_active_positions_come_first():
    run = Manual("itop", [torch.rand(10, 10) + 1], density=0.2, steps=100,
                 options={"growth": "random", "fresh_first": True})  # fmt: skip
    ever = run.masks[0]
    for _ in range(40):
        before = run.masks[0]
        after = run.step().masks[0]
        born, fresh = after & ~before, int((~ever).count_nonzero())
        assert int((born & ~ever).count_nonzero()) == min(int(born.count_nonzero()), fresh)
        ever |= after
    assert run.handle.journal[-1].layers[0].ever_active == float(ever.float().mean()) == 1.0


def test_exploration_goes_on_to_the_end():
    run = Manual("itop", [torch.rand(20, 20)], density=0.5, steps=50, update_every=10)
    for _ in range(50):
        run.step()
    assert [record.step for record in run.handle.journal] == [10, 20, 30, 40]
    assert run.handle.journal[-1].layers[0].removed > 0
