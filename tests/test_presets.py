"""Presets: the paper's settings, and files that start from one."""

from dataclasses import replace

import pytest

from regrow import models
from regrow.config import to_toml
from regrow.data.epoch import count_steps
from regrow.defaults import GENTLE, LETTER, named
from regrow.errors import ConfigurationError
from regrow.methods import METHODS, build
from regrow.presets import PRESETS, PUBLISHED, find
from regrow.scope import SCOPES
from regrow.training.optimisation import learning_rate
from regrow.training.setup import create_model

MNIST_TRAIN, CIFAR_TRAIN, IMAGENET_TRAIN = 54_000, 45_000, 1_281_167


def steps(name, samples):
    config = PRESETS[name]
    return count_steps(samples, config.data.batch), config.epochs


@pytest.mark.parametrize("name", ["mnist-lenet300", "mnist-lenet5", "mnist-lenet300-bn"])
def test_mnist_settings(name):
    config = PUBLISHED[name]
    assert steps(name, MNIST_TRAIN) == (540, 100)
    assert (config.optimizer.lr, config.optimizer.momentum, config.optimizer.nesterov) == (0.1, 0.9, True)
    assert (config.optimizer.weight_decay, config.optimizer.decay_norms) == (5e-4, True)
    assert [learning_rate(config, t, 540) for t in (24_999, 25_000, 50_000)] == pytest.approx([0.1, 0.01, 0.001])
    assert (config.sparse.method, config.sparse.scope, config.data.name) == ("sparse-momentum", "fully-sparse", "mnist")


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_runs_start_from_differs_from_the_publication_in_the_defaults_of_sparse_momentum(name):
    current, published = PRESETS[name], PUBLISHED[name]
    assert published.sparse.window_tolerance == 1e-3
    assert named("sparse-momentum", published.sparse.options).items() >= LETTER.items()
    assert named("sparse-momentum", current.sparse.options).items() >= GENTLE.items()
    letter = {**current.sparse.options, **LETTER}
    as_published = replace(current.sparse, window_tolerance=1e-3, options=letter)
    assert replace(current, sparse=as_published, optimizer=published.optimizer) == published
    assert (current.optimizer == published.optimizer) == (name != "mnist-lenet5")


def test_beside_the_published_there_is_a_demo_and_lenet5_starts_at_half_the_rate():
    assert set(PRESETS) - set(PUBLISHED) == {"demo"}
    half = replace(PUBLISHED["mnist-lenet5"].optimizer, lr=0.05)
    assert PRESETS["mnist-lenet5"].optimizer == half


@pytest.mark.parametrize("name", [n for n in PRESETS if n.startswith("cifar") and n != "cifar-wrn-28-2"])
def test_cifar_settings(name):
    config = PRESETS[name]
    assert steps(name, CIFAR_TRAIN) == (352, 250)
    assert config.optimizer.weight_decay == 5e-4
    assert [learning_rate(config, t, 352) for t in (29_999, 30_000, 60_000)] == pytest.approx([0.1, 0.01, 0.001])
    assert (config.data.name, config.data.augment, config.sparse.method) == ("cifar10", "auto", "sparse-momentum")


def test_wrn_28_2_follows_dsr():
    config = PRESETS["cifar-wrn-28-2"]
    assert (config.data.train_split, config.data.batch, config.epochs) == ("train+val", 100, 200)
    assert count_steps(50_000, config.data.batch) == 500
    rates = [learning_rate(config, epoch * 500, 500) for epoch in (0, 60, 120, 160)]
    assert rates == pytest.approx([0.1, 0.02, 0.004, 0.0008])
    assert config.sparse.scope == "partially-dense-cifar"
    assert config.model_options == {"dropout": 0.0}
    assert [255 * value for value in (*config.data.mean, *config.data.std)] == pytest.approx(
        [125.3, 123.0, 113.9, 63.0, 62.1, 66.7]
    )


@pytest.mark.parametrize(("name", "density"), [("imagenet-resnet50", 0.15626087), ("imagenet-resnet50-20", 0.25626087)])
def test_imagenet_settings(name, density):
    config = PRESETS[name]
    assert steps(name, IMAGENET_TRAIN) == (5005, 100)
    assert (config.sparse.density, config.sparse.scope) == (density, "fully-sparse")
    assert (config.optimizer.weight_decay, config.optimizer.decay_norms, config.optimizer.nesterov) == (
        1e-4,
        True,
        True,
    )
    rates = [learning_rate(config, epoch * 5005, 5005) for epoch in (29, 30, 60, 90)]
    assert rates == pytest.approx([0.1, 0.01, 0.001, 0.0001])
    assert config.label_smoothing == 0


def test_tuned_imagenet_settings():
    config = PRESETS["imagenet-resnet50-tuned"]
    assert config.label_smoothing == 0.1
    assert (config.schedule.kind, config.schedule.warmup_epochs) == ("cosine", 5.0)
    assert (config.optimizer.nesterov, config.optimizer.decay_norms, config.optimizer.weight_decay) == (
        False,
        False,
        1e-4,
    )
    assert config.sparse.options == {"prune_rate": 0.5}
    assert build(config.sparse.method, config.sparse.options).rate(0.0) == 0.5
    # The log of the 10% run shows 4,448 whole batches of 288; the last, smaller one counts here besides.
    assert config.data.batch == 288
    assert count_steps(IMAGENET_TRAIN, config.data.batch) == 4448 + 1


@pytest.mark.parametrize(("name", "fan"), [("imagenet-resnet50", 512), ("imagenet-resnet50-tuned", 1024)])
def test_only_tuned_imagenet_networks_are_initialised_by_fan_in(name, fan):
    config = PRESETS[name]
    weight = create_model(config, config.model_options).layer4[0].conv1.weight
    assert weight.shape[:2] == (512, 1024)
    assert weight.std().item() == pytest.approx((2 / fan) ** 0.5, rel=0.01)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_names_things_that_exist(name):
    config = PRESETS[name]
    assert models.info(config.model)
    assert config.sparse.method in METHODS
    assert config.sparse.scope in SCOPES
    assert find(name) is config


def test_default_prune_rate_is_the_papers():
    assert build("sparse-momentum", {}).rate(0.0) == pytest.approx(0.2)


def test_file_that_starts_from_a_preset(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('preset = "cifar-vgg16-d"\nseed = 3\n[sparse]\ndensity = 0.1\n')
    config = find(str(path))
    base = PRESETS["cifar-vgg16-d"]
    assert (config.seed, config.sparse.density) == (3, 0.1)
    assert (config.model, config.epochs, config.schedule) == (base.model, base.epochs, base.schedule)


def test_saved_configuration_of_a_run_is_a_file_too(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(to_toml(PRESETS["imagenet-resnet50-tuned"]))
    found, preset = find(str(path)), PRESETS["imagenet-resnet50-tuned"]
    assert found.sparse.options == {"prune_rate": 0.5, **GENTLE}
    assert replace(found, sparse=preset.sparse) == preset
    assert found.identity() == preset.identity()


def test_saved_configuration_of_an_older_run_is_what_that_run_was(tmp_path):
    older = PUBLISHED["mnist-lenet300"]
    text = to_toml(older).replace('{ grown_momentum = "keep", warmup = 0.0 }', "{}")
    assert "options = {}" in text
    (tmp_path / "config.toml").write_text(text)
    assert find(str(tmp_path / "config.toml")).sparse.options == {}
    (tmp_path / "environment.json").write_text("{}")  # the folder of a run
    assert find(str(tmp_path / "config.toml")) == older


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('preset = "mnist-lenet3000"', "mnist-lenet300'"),
        ("preset = 3", "unknown preset '3'"),
        ("preset = [1]", "unknown preset"),
    ],
)
def test_file_with_an_unknown_preset(tmp_path, content, message):
    path = tmp_path / "mine.toml"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match="preset") as caught:
        find(str(path))
    assert message in str(caught.value)


def test_unknown_names():
    with pytest.raises(ConfigurationError, match="did you mean 'mnist-lenet300'"):
        find("mnist-lenet-300")


def test_files_that_are_not_there(tmp_path):
    (tmp_path / "run.toml").write_text("")
    (tmp_path / "dir.toml").mkdir()
    (tmp_path / "a run").mkdir()
    (tmp_path / "a run" / "config.toml").write_text("")
    for name, message in (
        ("missing.toml", r"missing\.toml: no such file; `regrow train --list` shows the presets"),
        ("rum.toml", r"rum\.toml: no such file \(did you mean .*run\.toml\?\)"),
        ("dir.toml", r"dir\.toml is a folder: name a TOML file, or a preset"),
        ("a run", r"a run is a folder: name a TOML file, such as .*a run.config\.toml, or a preset"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            find(str(tmp_path / name))
