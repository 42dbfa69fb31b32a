"""Han: rounds, thresholds relative to a layer's spread, survivors keep their values."""

import pytest
import torch

from regrow.errors import ConfigurationError
from tests.support.manual import Manual


def test_rounds_halve_the_weights_down_to_the_target_and_keep_values():
    run = Manual("han", [torch.randn(10, 10), torch.randn(10, 10)], density=0.2)
    counts, first = [run.handle.nonzeros], run.weights
    while run.handle.rewind():
        counts.append(run.handle.nonzeros)
        assert all(torch.equal(w, f * m) for w, f, m in zip(run.weights, first, run.masks, strict=True))
    assert counts == [200, 100, 50, 40]
    assert not run.handle.rewind()


def test_one_quality_factor_times_the_spread_of_each_layer_decides():
    weights = [torch.randn(10, 10), 100 * torch.randn(10, 10)]
    run = Manual("han", weights, density=0.5)
    run.handle.rewind()
    relative = [w.abs() / w.std() for w in weights]
    kept = torch.cat([r[m] for r, m in zip(relative, run.masks, strict=True)])
    gone = torch.cat([r[~m] for r, m in zip(relative, run.masks, strict=True)])
    assert float(kept.min()) > float(gone.max())


def test_other_methods_have_no_rounds():
    with pytest.raises(ConfigurationError, match="has no rounds"):
        Manual("set", [torch.randn(4, 4)], density=0.5).handle.rewind()
