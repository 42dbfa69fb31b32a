"""Configuration: round trips, overrides, and errors that name the nearest valid key."""

import json
import string
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regrow import config as configuration
from regrow.config import Config, Data, Optimizer, Schedule, Sparse, from_dict, override, read_toml, to_toml
from regrow.defaults import LETTER, named
from regrow.errors import ConfigurationError
from regrow.ranges import choices_of, value_at

CHOICES = choices_of(Config())

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
keys = st.one_of(st.text(string.ascii_lowercase + "_", min_size=1, max_size=8), texts)
plain = st.one_of(st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False), texts)
options = st.dictionaries(keys, st.one_of(plain, st.lists(plain, max_size=3)), max_size=3)
positive = st.floats(1e-12, 1e6)
shares = st.floats(0, 0.999)

configs = st.builds(
    Config,
    model=texts,
    model_options=options,
    epochs=st.integers(1, 10**6),
    seed=st.integers(-(2**60), 2**60),
    label_smoothing=shares,
    precision=st.sampled_from(CHOICES["precision"]),
    compile=st.booleans(),
    checkpoint_seconds=st.floats(0, 1e9),
    data=st.builds(
        Data, name=texts, root=texts, batch=st.integers(1, 10**5), augment=st.sampled_from(CHOICES["data.augment"])
    ),
    optimizer=st.builds(Optimizer, lr=positive, momentum=shares, nesterov=st.booleans(), weight_decay=positive),
    schedule=st.builds(Schedule, kind=st.sampled_from(CHOICES["schedule.kind"]), epochs=st.tuples(positive, positive)),
    sparse=st.builds(Sparse, density=st.floats(1e-6, 1), scope=texts, options=options),
)


def error(function, *arguments):
    with pytest.raises(ConfigurationError) as caught:
        function(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    return message


@given(configs)
def test_a_toml_file_gives_the_configuration_back(config):
    told = named(config.sparse.method, config.sparse.options)
    as_told = replace(config, sparse=replace(config.sparse, options=told))
    assert from_dict(configuration.tomllib.loads(to_toml(config))) == as_told


@given(configs)
def test_identity_survives_a_file(config):
    assert from_dict(configuration.tomllib.loads(to_toml(config))).identity() == config.identity()


def test_load_reads_a_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        "epochs = 3\n[sparse]\ndensity = 0.2\noptions = { prune_rate = 0.4 }\n[schedule]\nepochs = [1, 2.5]\n"
    )
    config = configuration.load(path)
    assert (config.epochs, config.sparse.density, config.sparse.options) == (3, 0.2, {"prune_rate": 0.4})
    assert config.schedule.epochs == (1.0, 2.5)
    assert config.data == Data()


def test_load_names_a_file_that_is_no_toml(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("epochs = = 3")
    assert str(path) in error(configuration.load, path)
    assert "cannot be read" in error(configuration.load, tmp_path / "missing.toml")
    path.write_bytes(b"\xff\xfe")
    assert "not valid TOML" in error(configuration.load, path)


@pytest.mark.parametrize(
    ("key", "text", "path", "value"),
    [
        ("sparse.density", "0.1", "sparse.density", 0.1),
        ("density", "1", "sparse.density", 1.0),
        ("max-steps", "7", "max_steps", 7),
        ("sparse.update-every", "9", "sparse.update_every", 9),
        ("epochs", "12", "epochs", 12),
        ("schedule.epochs", "[30, 60]", "schedule.epochs", (30.0, 60.0)),
        ("nesterov", "false", "optimizer.nesterov", False),
        ("nesterov", "No", "optimizer.nesterov", False),
        ("compile", "yes", "compile", True),
        ("compile", "1", "compile", True),
        ("betas", "[0.8, 0.99]", "optimizer.betas", (0.8, 0.99)),
        ("model", "0", "model", "0"),
        ("data.name", "some where/x", "data.name", "some where/x"),
        ("lr", "1e-3", "optimizer.lr", 1e-3),
    ],
)
def test_overrides_by_path_leaf_and_dash(key, text, path, value):
    found = value_at(override(Config(), {key: text}), path)
    assert found == value
    assert type(found) is type(value)


def test_overrides_of_options():
    config = override(
        Config(), {"option.prune_rate": "0.3", "sparse.options.decay": "linear", "model_options.dropout": "0"}
    )
    assert config.sparse.options == {"prune_rate": 0.3, "decay": "linear"}
    assert config.model_options == {"dropout": 0}


def test_later_overrides_keep_earlier_ones():
    config = override(override(Config(), {"density": "0.2"}), {"method": "rigl", "lr": "0.5"})
    assert (config.sparse.density, config.sparse.method, config.optimizer.lr) == (0.2, "rigl", 0.5)


@pytest.mark.parametrize(
    ("key", "nearest"),
    [("densty", "density"), ("sparse.densty", "sparse.density"), ("optimiser.lr", "optimizer.lr"), ("epoch", "epochs")],
)
def test_unknown_override_names_the_nearest(key, nearest):
    assert f"did you mean {nearest!r}" in error(override, Config(), {key: "1"})


@pytest.mark.parametrize(
    ("values", "nearest"),
    [
        ({"epcohs": 3}, "epochs"),
        ({"denisty": 0.1}, "density"),
        ({"lr": 0.1}, "lr"),
        ({"sparse": {"densty": 0.1}}, "sparse.density"),
        ({"optimiser": {"lr": 0.1}}, "optimizer"),
        ({"sprase": {"density": 0.1}}, "sparse"),
        ({"model_option": {"dropout": 0}}, "model_options"),
    ],
)
def test_unknown_key_in_a_file_names_the_nearest(values, nearest):
    assert f"did you mean {nearest!r}" in error(from_dict, values)


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ("optimizer", "optimizer.name"),
        ("data", "data.name"),
        ("schedule", "schedule.kind"),
        ("sparse", "sparse.method"),
    ],
)
def test_a_section_is_no_key(section, key):
    assert f"{section} is a section: name one of its keys, {key} or one of" in error(override, Config(), {section: "x"})
    assert f"{section} is a section: write [{section}] with its keys, {key}" in error(from_dict, {section: "x"})


def test_ambiguous_leaf_lists_the_paths():
    assert "data.name or optimizer.name" in error(override, Config(), {"name": "x"})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": "three"}, "epochs must be a whole number, got 'three'"),
        ({"epochs": True}, "epochs must be a whole number, got True"),
        ({"epochs": 1.5}, "epochs must be a whole number, got 1.5"),
        ({"compile": 1}, "compile must be true or false, got 1"),
        ({"optimizer": {"lr": "0.1"}}, "optimizer.lr must be a number, got '0.1'"),
        ({"schedule": {"epochs": 3}}, "schedule.epochs must be a list, got 3"),
        ({"schedule": {"epochs": ["x"]}}, "schedule.epochs must be a number, got 'x'"),
        ({"sparse": 0.1}, "sparse is a section"),
        ({"sparse": {"options": 3}}, "sparse.options must be dict, got 3"),
        ({"model": 5}, "model must be text, got 5"),
    ],
)
def test_wrong_types_name_key_and_value(values, message):
    assert message in error(from_dict, values)


def test_an_override_with_a_wrong_type_is_an_error():
    assert "epochs must be a whole number, got 'many'" in error(override, Config(), {"epochs": "many"})


@pytest.mark.parametrize("path", CHOICES)
def test_choices(path):
    message = error(override, Config(), {path: "nonsense"})
    assert path in message
    assert all(choice in message for choice in CHOICES[path])
    for choice in CHOICES[path]:
        assert value_at(override(Config(), {path: choice}), path) == choice


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("density", "0"),
        ("density", "1.5"),
        ("density", "nan"),
        ("epochs", "0"),
        ("batch", "-1"),
        ("lr", "0"),
        ("lr", "inf"),
        ("weight_decay", "inf"),
        ("seed", "99999999999999999999"),
        ("seed", "-99999999999999999999"),
        ("betas", "[0.9]"),
        ("betas", "[0.9, 1]"),
        ("max_steps", "-1"),
        ("weight_decay", "-0.1"),
        ("label_smoothing", "1"),
        ("momentum", "1"),
        ("keep_checkpoints", "1"),
        ("threads", "-2"),
        ("warmup_epochs", "-1"),
    ],
)
def test_numbers_out_of_range(key, text):
    assert configuration.resolve_key(key) in error(override, Config(), {key: text})


@pytest.mark.parametrize("option", ["checkpoint_path", "pretrained", "pretrained_cfg"])
def test_a_configuration_cannot_make_timm_load_files(option):
    options = {"model_options": {option: "/somewhere"}}
    message = error(from_dict, {"model": "timm:resnet18", **options})
    assert message.startswith(f"model_options.{option} makes timm load a file")
    assert from_dict({"model": "lenet300", **options}).model_options == {option: "/somewhere"}


def test_identity_follows_what_decides_the_result_only():
    base = Config()
    for key, text in (
        ("checkpoint_seconds", "1"),
        ("keep_checkpoints", "3"),
        ("max_steps", "5"),
        ("tensorboard", "true"),
    ):
        assert override(base, {key: text}).identity() == base.identity()
    others = {
        override(base, pair).identity()
        for pair in ({"seed": "1"}, {"density": "0.1"}, {"lr": "0.2"}, {"option.a": "1"}, {"costs": "measured"})
    }
    assert len(others | {base.identity()}) == 6


def test_differences_are_named():
    text = configuration.differences(Config(), override(Config(), {"density": "0.1", "model": "x"}))
    assert text == 'model = "lenet300", not "x", sparse.density = 0.05, not 0.1'


def test_plain_values_are_json():
    assert json.loads(json.dumps(configuration.as_dict(Config())))["sparse"]["density"] == 0.05


def test_runs_from_before_a_key_existed_keep_their_identity():
    assert Config(sparse=Sparse(window_tolerance=1e-3, options=LETTER)).identity() == "c71a4ea4ba"
    assert override(Config(), {"betas": "[0.8, 0.99]"}).identity() != Config().identity()


def test_a_truth_that_is_none_names_the_values():
    assert "compile must be true or false, got 'maybe'" in error(override, Config(), {"compile": "maybe"})


def test_a_number_beyond_floats_is_refused():
    with pytest.raises(
        ConfigurationError, match=r"sparse\.density must be a number below 1e308, got one of 401 digits"
    ):
        from_dict({"sparse": {"density": 10**400}})


def test_files_that_are_no_configurations(tmp_path):
    for content, message in ((b"a = " + b"[" * 100_000, "not valid TOML"), (b"#" * (2 << 20), "too large")):
        (tmp_path / "a.toml").write_bytes(content)
        with pytest.raises(ConfigurationError, match=message):
            read_toml(tmp_path / "a.toml")


def test_a_key_outside_its_section_is_told_where_it_belongs():
    assert error(from_dict, {"density": 0.1}).endswith("did you mean 'density' in the section [sparse]?")
