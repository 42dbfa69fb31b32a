"""Every experiment is one that could be started: settings exist, targets are the paper's."""

import pytest

from regrow import models
from regrow.analysis.statistics import Z95
from regrow.defaults import LETTER
from regrow.errors import ConfigurationError
from regrow.experiments import targets
from regrow.experiments.catalogue import EXPERIMENTS, find
from regrow.experiments.rows import setting_of
from regrow.methods import build

CELLS = [(name, cell) for name, experiment in EXPERIMENTS.items() for cell in experiment.cells()]


def labelled(name, **wanted):
    return [c for c in find(name).cells() if all(getattr(c, key) == value for key, value in wanted.items())]


def test_names():
    assert list(EXPERIMENTS) == [
        "mnist-compression", "mnist-methods", "cifar-snip", "cifar-wrn28", "imagenet", "dense-equivalence", "ablation",
        "sensitivity", "features", "growth-window", "cost-redistribution", "cifar-check",
    ]  # fmt: skip
    with pytest.raises(ConfigurationError, match="did you mean 'ablation'"):
        find("ablatoin")


def test_every_setting_exists():
    for name, cell in CELLS:
        build(cell.config.sparse.method, dict(cell.config.sparse.options))
        models.info(cell.config.model)
        assert cell.density == pytest.approx(cell.config.sparse.density), (name, cell.label)


def test_no_two_lines_of_a_table_are_the_same_run_but_where_meant():
    for name, experiment in EXPERIMENTS.items():
        identities = [cell.config.identity() for cell in experiment.cells()]
        # Prune rate 0.5 with cosine decay is also the momentum sweep's point at 0.9, for both networks.
        assert len(identities) - len(set(identities)) == (2 if name == "sensitivity" else 0), name


def test_compression_has_the_figures_settings():
    cells = find("mnist-compression").cells()
    assert len(cells) == 41
    others = [c for c in cells if c.label not in ("dense", "sparse momentum")]
    assert {(c.model, c.config.epochs) for c in others} == {("lenet300", 10), ("lenet5", 5)}
    assert {c.label: c.target.error for c in others if c.model == "lenet300" and c.target}["dns"] == 2.0
    cells = [c for c in cells if c not in others]
    assert [c.density for c in cells[:9]] == [1.0, 0.01, 0.015, 0.018, 0.02, 0.044, 0.05, 0.08, 0.083]
    assert cells[6].target == targets.Target(1.53, 0.02)
    assert all((c.config.epochs, c.config.data.batch, c.config.optimizer.lr) == (100, 100, 0.1) for c in cells)


def test_methods_name_the_variant_of_the_network_they_use():
    for cell in find("mnist-methods").cells():
        assert cell.label.endswith(f"({cell.config.model})")
    assert {c.config.model for c in labelled("mnist-methods", label="dsr (lenet300-bn)")} == {"lenet300-bn"}
    assert {c.label.split()[0].strip(",") for c in find("mnist-methods").cells()} == {
        "dense", "sparse-momentum", "set", "dsr", "deep-r", "rigl", "snip", "static",
    }  # fmt: skip


def test_figure_3_has_sparse_momentum_with_all_layers_sparse_and_with_the_last_one_dense():
    whole, last = (
        [c for c in find("mnist-methods").cells() if c.label == label]
        for label in ("sparse-momentum (lenet300)", "sparse-momentum, last layer dense (lenet300)")
    )
    assert [c.target for c in whole] == [c.target for c in last]
    assert {c.config.sparse.scope for c in whole} == {"fully-sparse"}
    assert {c.config.sparse.scope for c in last} == {"dense:@last"}


def test_deep_r_trains_as_its_authors_do_or_as_dsrs_do():
    momenta = [(name, cell.config.optimizer.momentum) for name, cell in CELLS if cell.config.sparse.method == "deep-r"]
    assert len(momenta) == 6 + 5 + 2
    assert set(momenta) == {("mnist-methods", 0.0), ("cifar-wrn28", 0.9), ("imagenet", 0.9)}


def test_table_1_has_snip_with_fresh_weights_as_its_authors_train_it():
    options = [c.config.sparse.options for c in labelled("cifar-snip", label="SNIP")]
    assert options == [{"reinitialise": True}] * len(targets.CIFAR_SNIP)


def test_snip_on_lenet300_stands_beside_figure_1():
    found = {c.density: c.target and c.target.error for c in labelled("mnist-methods", label="snip (lenet300)")}
    assert {density: error for density, error in found.items() if error} == {0.02: 2.4, 0.05: 1.6}


def test_features_are_compared_where_sparse_networks_reach_dense_performance():
    def overlap(ours, dense):
        return abs(ours.error - dense.error) <= Z95 * (ours.se + dense.se)

    densities = {c.model: round(100 * c.density) for c in find("features").cells() if not c.is_dense}
    reached = (percent for percent, t in targets.WRN28["sparse-momentum"].items() if overlap(t, targets.DENSE_WRN28))
    assert densities.pop("wrn-28-2") == min(reached)
    assert densities == {model: targets.DENSE_EQUIVALENCE[model][0] for model in densities}


def test_dense_equivalence_raises_by_five_percent_and_measures():
    own = labelled("dense-equivalence", model="vgg16-d")
    assert [c.density for c in own] == [1.0, *(round(0.05 * i, 2) for i in range(1, 20))]
    assert all(c.config.measure_speedup for c in own)
    assert [c.density for c in own if c.target is not None] == [1.0, 0.05]
    assert find("dense-equivalence").stops_when_equal


def test_ablation_has_four_rows_per_network():
    assert [c.label for c in labelled("ablation", model="lenet5")] == [
        "momentum / momentum", "momentum / random", "none / momentum", "none / random",
    ]  # fmt: skip
    assert labelled("ablation", model="lenet5", label="none / random")[0].config.sparse.options == {
        "redistribution": "none",
        "growth": "random",
        **LETTER,
    }


@pytest.mark.parametrize(
    ("model", "other"), [("lenet300", "mnist-compression"), ("lenet5", "mnist-compression"), ("vgg16-d", "cifar-snip")]
)
def test_ablation_shares_the_runs_of_sparse_momentum_itself(model, other):
    (shared,) = find("ablation").chosen(model, settings=["momentum / momentum"])
    (known,) = find(other).chosen(model, [0.05], settings=["sparse momentum"])
    assert shared.config == known.config


def test_wrn28_follows_the_protocol_of_dsrs_authors():
    cells = find("cifar-wrn28").cells()
    assert {c.config.sparse.scope for c in cells} == {"partially-dense-cifar"}
    assert {c.config.data.train_split for c in cells} == {"train+val"}
    assert {c.config.sparse.distribution for c in cells if c.config.sparse.method in ("set", "dsr")} == {"uniform"}


def test_sensitivity_covers_both_sweeps():
    own = labelled("sensitivity", model="alexnet-s")
    assert len(own) == 6 * 2 + 7 * 2
    momentum = next(c for c in own if c.label == "momentum 0.8 sparse")
    assert momentum.config.optimizer.momentum == 0.8
    assert momentum.config.sparse.options["prune_rate"] == 0.5


def test_features_pair_dense_and_sparse():
    assert [(c.model, c.label) for c in find("features").cells()] == [
        (model, label) for model in ("alexnet-s", "vgg16-d", "wrn-28-2") for label in ("dense", "sparse momentum")
    ]


def test_patience_has_validations_to_look_at():
    for name, cell in CELLS:
        assert not cell.config.patience or cell.config.data.holds_out, (name, cell.label)
    assert {c.config.patience for c in find("mnist-compression").cells()} == {2}


class TestNarrowing:
    def test_by_model_density_and_epochs(self):
        cells = find("mnist-compression").chosen("lenet300", [0.05, 1.0], 5, ["dense", "sparse momentum"])
        assert [(c.model, c.density, c.config.epochs) for c in cells] == [("lenet300", 1.0, 5), ("lenet300", 0.05, 5)]

    def test_by_the_beginning_of_a_setting(self):
        cells = find("mnist-methods").chosen(densities=[0.01, 0.05], settings=["deep-r"])
        assert [(c.label, c.density) for c in cells] == [("deep-r (lenet300)", 0.01), ("deep-r (lenet300)", 0.05)]
        partners = find("sensitivity").chosen("vgg16-d", settings=["momentum 0.9 sparse"])
        assert {c.label for c in partners if not c.is_dense} == {"momentum 0.9 sparse"}
        assert any(c.is_dense for c in partners), "its analysis compares with the dense network"

    @pytest.mark.parametrize(
        ("name", "model", "density", "dense"),
        [
            ("dense-equivalence", "vgg16-d", 0.05, ["dense"]),
            ("sensitivity", None, 0.05, [f"momentum {m:g} dense" for m in targets.MOMENTUM_SENSITIVITY["vgg16-d"]]),
            ("features", None, 0.5, ["dense"]),
        ],
    )
    def test_the_dense_partners_stay_where_an_analysis_compares_with_them(self, name, model, density, dense):
        cells = find(name).chosen(model, [density], None)
        assert [c.label for c in cells if c.density == 1] == dense
        assert {c.density for c in cells} == {density, 1.0}
        assert {c.model for c in cells if c.density == 1} == {c.model for c in cells if c.density == density}

    def test_a_momentum_is_nothing_without_the_anchor_and_prune_rates_compare_with_nothing(self):
        momenta = find("sensitivity").chosen("vgg16-d", settings=["momentum 0.5 sparse"])
        assert {c.label for c in momenta} == {
            f"momentum {m} {kind}" for m in (0.5, 0.9) for kind in ("sparse", "dense")
        }
        rates = find("sensitivity").chosen(settings=["prune rate 0.2"])
        assert {c.label for c in rates} == {"prune rate 0.2 cosine", "prune rate 0.2 linear"}

    def test_elsewhere_only_what_was_asked_for_runs(self):
        assert {c.density for c in find("mnist-compression").chosen(None, [0.05], None)} == {0.05}

    def test_what_is_not_there_is_explained(self):
        with pytest.raises(ConfigurationError, match="did you mean 'lenet5'"):
            find("mnist-compression").chosen("lenet-5", None, None)
        with pytest.raises(ConfigurationError, match=r"no density 0.5; it has 0\.01, "):
            find("mnist-compression").chosen("lenet300", [0.5], None)
        with pytest.raises(
            ConfigurationError, match=r"unknown setting 'none random' of ablation: did you mean 'none / random'"
        ):
            find("ablation").chosen(settings=["none random"])


def test_the_check_has_every_cifar_network_of_the_paper_and_room_for_updates():
    cells = find("cifar-check").chosen(settings=["first steps"])
    assert {c.model for c in cells} == {*targets.CIFAR_SNIP, "wrn-28-2"}
    assert all(c.config.max_steps // c.config.sparse.update_every >= 1 for c in cells)
    assert all(c.config.max_steps * c.config.data.batch <= 50_000 for c in cells)


def test_the_hour_of_alexnet_has_the_settings_of_table_1():
    (hour,) = find("cifar-check").chosen(settings=["first 30 epochs"])
    (whole,) = labelled("cifar-snip", label="sparse momentum", model="alexnet-s")
    assert hour.config.epochs == 250, "schedules are those of the whole run"
    ours, paper = setting_of(hour.config), setting_of(whole.config)
    assert {key for key in ours if ours[key] != paper[key]} == {"max_steps"}


def test_methods_that_dsr_s_authors_compare_have_their_settings():
    wrn = {c.label: c.config for c in labelled("cifar-wrn28", density=0.1)}
    assert (wrn["set"].sparse.update_every, wrn["dsr"].sparse.update_every) == (100, 100)
    assert wrn["set"].sparse.options == {
        "prune_rate": 0.138,
        "by_sign": False,
        "stop": 0.95,
        "stages": [0.125, 0.4, 0.7],
    }
    assert (wrn["deep-r"].optimizer.weight_decay, wrn["deep-r"].sparse.options["signs"]) == (0.0, "free")
    large = {c.label.split()[-1]: c.config for c in labelled("imagenet", density=0.2) if c.label.startswith("part")}
    assert large["dsr"].sparse.options == {"target": 400_000, "stages": [0.25, 0.5, 0.75]}
    assert (large["set"].sparse.update_every, large["set"].sparse.options["prune_rate"]) == (1000, 0.089)
    assert large["deep-r"].optimizer.weight_decay == 1e-4


def test_only_the_tuned_ten_percent_run_has_batches_of_288():
    batches = {c.density: (c.config.data.batch, c.config.optimizer.lr) for c in labelled("imagenet", label="tuned")}
    assert batches == {1.0: (256, 0.1), 0.1: (288, 0.1125), 0.2: (256, 0.1), 0.3: (256, 0.1)}
