"""Class specialisation on hand-made tensors, on tiny models, and on the published summaries."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from regrow import models
from regrow.analysis.feature_figures import draw_specialisation
from regrow.analysis.features import BINS, activity, compare, histogram, specialisation
from regrow.experiments.targets import FEATURES

# Stored channel data of the reference: kept channels per layer, dense and sparse.
KEPT = {
    "alexnet-s": ([68, 226, 346, 347, 227], [59, 103, 155, 294, 202]),
    "vgg16-d": (
        [18, 56, 106, 116, 229, 230, 227, 429, 392, 334, 358, 379, 364],
        [17, 57, 111, 117, 229, 203, 161, 200, 188, 214, 190, 316, 266],
    ),
}


class Tiny(nn.Module):
    """conv - BN - ReLU twice, the ReLU shared; a linear layer with a ReLU that must not count."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 2, 1, bias=False), nn.BatchNorm2d(2)
        self.conv2, self.bn2 = nn.Conv2d(2, 3, 1, bias=False), nn.BatchNorm2d(3)
        self.relu = nn.ReLU()
        self.fc, self.relu_fc = nn.Linear(3, 2), nn.ReLU()

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        return self.relu_fc(self.fc(x.mean((2, 3))))


class TestSpecialisation:
    def test_one_class_is_one_and_indifference_is_one_over_classes(self):
        found = specialisation(np.array([[5.0, 0, 0, 0], [1, 1, 1, 1]]))
        assert found.tolist() == [1.0, 0.25]

    def test_channels_below_five_percent_together_are_dropped(self):
        # Contributions 0.01, 0.02, 0.03, 0.94: cumulated 0.01, 0.03, 0.06, 1 -> searchsorted(0.05) drops two.
        sums = np.array([[1.0, 0], [0, 2], [3, 0], [47, 47]])
        assert specialisation(sums).tolist() == [1.0, 0.5]

    def test_a_channel_that_reaches_the_point_exactly_stays(self):
        assert len(specialisation(np.array([[5.0, 0], [0, 95]]))) == 2

    def test_silent_channels_and_silent_layers_are_dropped(self):
        assert len(specialisation(np.array([[0.0, 0], [1, 1]]))) == 1
        assert len(specialisation(np.zeros((3, 2)))) == 0

    def test_unequal_classes_are_normalised_first(self):
        # Twice as many samples of class 1 with the same response each: the channel is indifferent.
        assert specialisation(np.array([[10.0, 20.0]]), np.array([10, 20])).tolist() == [0.5]

    def test_classes_without_samples_are_skipped(self):
        assert specialisation(np.array([[10.0, 0.0, 10.0]]), np.array([5, 0, 5])).tolist() == [0.5]


def feature_layers(model, images):
    """Names of the layers that are looked at."""
    return list(activity(model, [(images, torch.zeros(len(images), dtype=torch.int64))], num_classes=1))


class TestActivity:
    def test_sums_absolute_values_by_class(self):
        model = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.BatchNorm2d(1), nn.ReLU())
        nn.init.ones_(model[0].weight)
        model[1].eps = 0.0
        images = torch.tensor([[[[1.0, -2.0]]], [[[3.0, 4.0]]], [[[0.5, 0.5]]]])
        found = activity(model, [(images, torch.tensor([0, 1, 0]))], num_classes=3)
        assert list(found) == ["2"]
        assert found["2"].sums.tolist() == [[2.0, 7.0, 0.0]]
        assert found["2"].samples.tolist() == [2.0, 1.0, 0.0]

    def test_batches_add_up_and_the_model_is_left_as_it_was(self):
        model = Tiny()
        model.bn2.eval()
        images, labels = torch.randn(6, 1, 4, 4), torch.tensor([0, 1, 1, 0, 1, 0])
        whole = activity(model, [(images, labels)], 2)
        parts = activity(model, [(images[:2], labels[:2]), (images[2:], labels[2:])], 2)
        for name in whole:
            np.testing.assert_allclose(whole[name].sums, parts[name].sums, rtol=1e-6)
        assert model.training
        assert not model.bn2.training
        assert int(model.bn1.num_batches_tracked) == 0
        assert not model.relu._forward_hooks

    def test_a_shared_relu_counts_once_per_call_and_linear_relus_do_not(self):
        assert feature_layers(Tiny(), torch.randn(2, 1, 4, 4)) == ["relu", "relu#2"]

    @pytest.mark.parametrize(
        ("name", "count"), [("alexnet-s", 5), ("vgg16-d", 13), ("vgg16-like", 13), ("wrn-28-2", 24)]
    )
    def test_the_papers_networks_have_their_feature_layers(self, name, count):
        layers = feature_layers(models.create(name, seed=0), torch.randn(1, 3, 32, 32))
        assert len(layers) == count
        assert not any(layer.startswith("fc") for layer in layers)

    def test_a_wide_residual_network_is_looked_at_inside_its_blocks(self):
        layers = feature_layers(models.create("wrn-22-2", seed=0), torch.randn(1, 3, 8, 8))
        assert layers[:3] == ["block1.0.relu1", "block1.0.relu2", "block1.1.relu1"]
        assert "relu" not in layers


class TestCompare:
    def test_pooled_and_per_layer(self):
        rng = np.random.default_rng(0)
        dense = {"a": rng.uniform(0.3, 0.5, 40), "b": rng.uniform(0.1, 0.3, 40)}
        sparse = {"a": rng.uniform(0.1, 0.3, 30), "b": rng.uniform(0.1, 0.3, 30)}
        found = compare(dense, sparse)
        pooled = stats.kruskal(np.concatenate(list(dense.values())), np.concatenate(list(sparse.values())))
        assert found.pooled.statistic == pytest.approx(pooled.statistic)
        assert (found.pooled.dense_channels, found.pooled.sparse_channels) == (80, 60)
        first, second = found.layers
        assert first.corrected == pytest.approx(2 * first.p)
        assert first.corrected < 0.001
        assert second.corrected == second.p > 0.01

    def test_a_layer_without_channels_or_variation_has_no_test(self):
        same = np.full(3, 0.2)
        found = compare({"a": same, "b": np.array([])}, {"a": same, "b": same})
        assert [layer.p for layer in found.layers] == [None, None]
        assert np.isnan(found.layers[1].dense_mean)

    def test_different_networks_are_refused(self):
        with pytest.raises(ValueError, match="different feature layers"):
            compare({"a": np.ones(1)}, {"b": np.ones(1)})

    @pytest.mark.parametrize("model", list(KEPT))
    def test_the_published_pooled_means_follow_from_the_layers(self, model):
        paper = FEATURES[model]
        groups = [np.repeat(means, kept) for means, kept in zip(paper.layers, KEPT[model], strict=True)]
        found = compare({"all": groups[0]}, {"all": groups[1]}).pooled
        assert (found.dense_channels, found.sparse_channels) == paper.channels
        assert found.dense_mean == pytest.approx(paper.means[0], abs=6e-5)
        assert found.sparse_mean == pytest.approx(paper.means[1], abs=6e-5)

    @pytest.mark.parametrize(("h", "p"), [(31.68, 1.8e-8), (9.86, 0.0017), (0.66, 0.42), (4.43, 0.035)])
    def test_the_published_p_values_have_one_degree_of_freedom(self, h, p):
        assert stats.chi2.sf(h, 1) == pytest.approx(p, rel=0.03)


def test_histogram_has_49_bins_from_009_to_051():
    assert len(BINS) == 50
    assert histogram(np.array([0.09, 0.3, 0.51, 0.6])).sum() == 3
    assert len(histogram(np.array([]))) == 49


def test_figure_is_written_for_many_layers_and_empty_ones(tmp_path):
    rng = np.random.default_rng(1)
    dense = {f"layer{i}": rng.uniform(0.1, 0.4, 20) for i in range(7)}
    sparse = {**dense, "layer3": np.array([])}
    written = draw_specialisation(dense, sparse, "title", tmp_path / "specialisation-wrn")
    assert sorted(path.suffix for path in written) == [".png", ".svg"]
    assert all(path.stat().st_size > 1000 for path in written)


def test_a_model_that_writes_to_its_features_afterwards_counts_the_same():
    class Shifted(Tiny):
        def forward(self, x):
            features = self.relu(self.bn1(self.conv1(x)))
            before = features.clone()
            features += 1.0
            return self.relu_fc(self.fc(self.relu(self.bn2(self.conv2(before))).mean((2, 3))))

    torch.manual_seed(0)
    shifted, plain = Shifted(), Tiny()
    plain.load_state_dict(shifted.state_dict())
    batch = [(torch.randn(6, 1, 4, 4), torch.arange(6) % 2)]
    found, expected = (activity(model, batch, num_classes=2) for model in (shifted, plain))
    assert expected["relu"].sums.max() > 0
    for name, layer in expected.items():
        np.testing.assert_array_equal(found[name].sums, layer.sums)
