import shutil
from dataclasses import replace

import pytest
import torch
from torch import nn

from regrow import models
from regrow.config import Data, to_toml
from regrow.errors import CheckpointWarning
from regrow.models.registry import ModelInfo
from regrow.report.reading import read_run
from regrow.report.snapshot import _dataset, take
from regrow.training.stored import read_config
from tests.report.conftest import small, with_method


def test_rows_are_those_of_the_result_and_the_journal(files):
    shot = take(files)
    assert shot.step == 24
    assert [row.name for row in shot.rows] == ["fc1", "fc2", "fc3"]
    assert sum(row.nonzeros for row in shot.rows) == files.result["nonzeros"]
    assert [row.nonzeros for row in shot.rows] == [layer.after for layer in files.journal[-1].layers]
    assert [row.macs for row in shot.rows] == [235_200, 30_000, 1_000]
    assert shot.rows[0].kept_macs == shot.rows[0].nonzeros
    assert all(0 < row.input_density <= 1 for row in shot.rows)
    assert (shot.images, shot.split, shot.notices) == (256, "validation", [])


def test_convolutions_and_dense_layers(train):
    config = small(model="lenet5", epochs=2, max_steps=8, sparse=replace(small().sparse, scope="partially-dense"))
    shot = take(read_run(train(config)))
    assert [(row.name, row.group, row.sparse) for row in shot.rows][:2] == [
        ("conv1", "conv", False),
        ("conv2", "conv", True),
    ]
    assert shot.rows[0].density == 1.0
    assert shot.rows[0].macs == 288_000
    assert shot.rows[0].reason


@pytest.mark.parametrize("method", ["snip", "rigl", "deep-r", "top-kast"])
@pytest.mark.filterwarnings("ignore:masks will never change")
def test_other_methods_are_rebuilt(train, method):
    files = read_run(train(with_method(method, epochs=2)))
    shot = take(files)
    assert sum(row.nonzeros for row in shot.rows) == files.result["nonzeros"]


def test_without_a_checkpoint_the_reader_is_told(editable):
    shutil.rmtree(editable / "checkpoints")
    shot = take(read_run(editable))
    assert (shot.step, shot.rows) == (None, [])
    assert "no checkpoint" in shot.notices[0]


def test_a_checkpoint_older_than_the_first_row_is_enough(editable):
    (editable / "metrics.jsonl").unlink()
    assert take(read_run(editable)).step == 24


def test_images_are_normalised_as_in_the_run(editable):
    config = read_config(editable)
    (editable / "config.toml").write_text(to_toml(replace(config, data=replace(config.data, mean=(0.5,), std=(0.25,)))))
    plain, own = _dataset(config, []), _dataset(read_config(editable), [])
    (some, _), (others, _) = next(plain.batches(batch_size=8)), next(own.batches(batch_size=8))
    assert float(others.min()) == -2.0
    assert not torch.equal(some, others)


def test_without_the_data_the_published_form_is_used(editable, monkeypatch, tmp_path):
    monkeypatch.setenv("REGROW_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("REGROW_DATA", raising=False)
    config = replace(read_config(editable), data=Data("mnist", batch=600))
    (editable / "config.toml").write_text(to_toml(config))
    with pytest.warns(CheckpointWarning, match="not that of the checkpoints"):
        shot = take(read_run(editable))
    assert len(shot.rows) == 3
    assert all(row.input_density is None for row in shot.rows)
    assert "cannot be read here" in shot.notices[0]
    config = replace(config, data=Data(str(tmp_path / "gone"), batch=600), model="lenet5")
    (editable / "config.toml").write_text(to_toml(config))
    with pytest.warns(CheckpointWarning, match="not that of the checkpoints"):
        shot = take(read_run(editable))
    assert shot.rows == []
    assert "shape is unknown" in shot.notices[1]


def one_layer(input_shape=(1, 28, 28), num_classes=10):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, num_classes))


def test_a_network_of_one_layer(train):
    if "one-layer-test" not in {record.name for record in models.list_models()}:
        models.register(ModelInfo("one-layer-test", (1, 28, 28), 10, "for tests", one_layer))
    shot = take(read_run(train(small(model="one-layer-test", epochs=2))))
    assert [(row.name, row.numel) for row in shot.rows] == [("1", 7840)]
