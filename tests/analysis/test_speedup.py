"""The paper's speed-up estimates against numbers worked out by hand."""

import itertools

import pytest
import torch
from torch import nn

from regrow import models
from regrow.analysis.speedup import SpeedupRecorder, convolutions, reduced_times, shares, speedups


def ticking(*durations):
    """A clock whose intervals between pairs of calls are the given durations, over and over."""
    now, lengths, starts = 0.0, itertools.cycle(durations), itertools.cycle((True, False))

    def clock():
        nonlocal now
        if not next(starts):
            now += next(lengths)
        return now

    return clock


class Two(nn.Module):
    """Two convolutions, a projection of a shortcut that does not count, and a linear layer."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 2, 1, bias=False)
        self.relu = nn.ReLU()
        self.second = nn.Conv2d(2, 4, 1, bias=False)
        self.shortcut = nn.Conv2d(1, 4, 1, bias=False)
        self.fc = nn.Linear(4, 2)
        with torch.no_grad():
            # ReLU passes channel 0 of a positive image and kills channel 1.
            self.first.weight.copy_(torch.tensor([1.0, -1.0]).view(2, 1, 1, 1))
            # Channel 1 has no weight at all, channel 0 three of four.
            self.second.weight.copy_(torch.tensor([[1.0, 0], [1, 0], [1, 0], [0, 0]]).view(4, 2, 1, 1))

    def forward(self, x):
        return self.fc((self.second(self.relu(self.first(x))) + self.shortcut(x)).mean((2, 3)))


IMAGES = torch.tensor([[[[1.0, 2.0], [3.0, 0.0]]], [[[0.0, 0.0], [0.0, 0.0]]]])


class TestShares:
    def test_by_hand(self):
        # 3 of 16 entries; 3 of 8 weights; channel 1 empty; of four maps one is alive.
        inputs = torch.zeros(2, 2, 2, 2)
        inputs[0, 0] = torch.tensor([[1.0, 2.0], [3.0, 0.0]])
        assert shares(inputs, Two().second.weight) == {
            "activation_density": 3 / 16,
            "weight_density": 3 / 8,
            "empty_share": 0.5,
            "dead_share": 0.75,
        }

    def test_a_channel_is_empty_only_if_no_output_and_no_position_reads_it(self):
        weight = torch.zeros(2, 3, 3, 3)
        weight[1, 2, 0, 1] = 1.0
        assert shares(torch.ones(1, 3, 3, 3), weight)["empty_share"] == pytest.approx(2 / 3)

    def test_reduced_times(self):
        share = {"activation_density": 0.5, "weight_density": 0.1, "empty_share": 0.2, "dead_share": 0.25}
        found = reduced_times(10.0, share)
        assert found == pytest.approx(
            {
                "dense": 10,
                "weights": 1,
                "activations": 5,
                "both": 0.5,
                "empty_channels": 8,
                "empty_channels_dead_maps": 6,
            }
        )


class TestRecorder:
    def test_layers_by_name_without_shortcuts_and_linear_layers(self):
        assert [name for name, _ in convolutions(Two())] == ["first", "second"]
        names = [name for name, _ in convolutions(models.create("wrn-22-2", seed=0))]
        assert len(names) == 1 + 2 * 9
        assert not any("shortcut" in name for name in names)
        block = nn.ModuleDict({"downsample": nn.Sequential(nn.Conv2d(1, 4, 1)), "skipped": nn.Conv2d(1, 4, 3)})
        assert [name for name, _ in convolutions(block)] == ["skipped"]

    def test_estimates_by_hand(self):
        model = Two()
        with SpeedupRecorder(model, clock=ticking(1.0, 4.0)) as recorder:
            model(IMAGES)
        # first: a = 3/8, w = 1, e = 0, z = 1/2, t = 1;  second: a = 3/16, w = 3/8, e = 1/2, z = 3/4, t = 4.
        assert recorder.speedups() == pytest.approx(
            {
                "weights": 5 / (1 + 4 * 3 / 8),
                "activations": 5 / (3 / 8 + 4 * 3 / 16),
                "both": 5 / (3 / 8 + 4 * 3 / 16 * 3 / 8),
                "empty_channels": 5 / (1 + 4 * 0.5),
                "empty_channels_dead_maps": 5 / (0.5 + 4 * 0.5 * 0.25),
            }
        )

    def test_segments_are_averaged_and_summed(self):
        model = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False))
        nn.init.ones_(model[0].weight)
        with SpeedupRecorder(model, segment=2, clock=ticking(1.0, 3.0, 5.0)) as recorder:
            for image in (torch.ones(1, 1, 1, 2), torch.tensor([[[[1.0, 0.0]]]]), torch.ones(1, 1, 1, 2)):
                model(image)
        rows = recorder.rows()
        assert [row["passes"] for row in rows] == [2, 1]
        assert rows[0]["layers"]["0"]["dense"] == 2.0
        assert rows[0]["layers"]["0"]["both"] == (1.0 + 1.5) / 2
        assert rows[0]["layers"]["0"]["activation_density"] == 0.75
        # The unfinished segment counts by its passes: (1 + 3 + 5) / (1 + 1.5 + 5).
        assert recorder.speedups()["both"] == pytest.approx(9 / 7.5)

    def test_full_segments_count_alike(self):
        layer = {"dense": 2.0, "weights": 1.0, "activations": 2.0, "both": 1.0}
        layer |= {"empty_channels": 2.0, "empty_channels_dead_maps": 0.0}
        rows = [{"passes": 1000, "layers": {"a": layer}}, {"passes": 1000, "layers": {"a": {**layer, "both": 0.5}}}]
        found = speedups(rows)
        assert found["both"] == pytest.approx(4 / 1.5)
        assert found["empty_channels_dead_maps"] is None

    def test_evaluation_is_not_recorded_and_hooks_go(self):
        model = Two()
        recorder = SpeedupRecorder(model)
        with recorder:
            model.eval()(IMAGES)
            assert recorder.rows() == []
        model.train()(IMAGES)
        assert recorder.rows() == []
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())

    def test_state_continues(self):
        model = Two()
        durations = (1.0, 4.0)
        with SpeedupRecorder(model, segment=2, clock=ticking(*durations)) as whole:
            for _ in range(3):
                model(IMAGES)
        with SpeedupRecorder(model, segment=2, clock=ticking(*durations)) as first:
            model(IMAGES)
        second = SpeedupRecorder(model, segment=2, clock=ticking(*durations))
        second.load(first.state())
        with second:
            model(IMAGES)
            model(IMAGES)
        assert second.rows() == whole.rows()

    def test_rerun_times_a_dense_convolution_of_its_own(self):
        model = nn.Sequential(nn.Conv2d(1, 1, 1))
        with SpeedupRecorder(model, rerun=True, clock=ticking(100.0, 2.0)) as recorder:
            model(torch.ones(1, 1, 2, 2))
        assert recorder.rows()[0]["layers"]["0"]["dense"] == 2.0

    def test_gradients_and_outputs_are_untouched(self):
        model = Two()
        plain = model(IMAGES)
        with SpeedupRecorder(model):
            watched = model(IMAGES)
        watched.sum().backward()
        assert torch.equal(plain, watched)
        assert model.first.weight.grad is not None
