"""Grids: what is run, and how the runs are named."""

from dataclasses import replace

import pytest

from regrow.config import Config
from regrow.errors import ConfigurationError
from regrow.experiments.grid import Job, expand, parse_grid, parse_seeds


def test_every_combination_with_every_seed():
    grid = parse_grid(["density=0.05,0.1", "option.prune_rate=0.2,0.5"])
    jobs = expand(Config(), grid, [0, 3])
    assert len({job.key for job in jobs}) == len(jobs) == 8
    assert jobs[0].label == "density=0.05 option.prune_rate=0.2"
    assert jobs[-1].config.sparse.options == {"prune_rate": 0.5}
    assert jobs[-1].config.seed == 3


def test_a_method_with_its_own_density_runs_once():
    jobs = expand(Config(), parse_grid(["method=dense,rigl", "density=0.05,0.1"]), [0])
    assert [job.label for job in jobs] == [
        "method=dense density=1",
        "method=rigl density=0.05",
        "method=rigl density=0.1",
    ]
    assert jobs[0].config.sparse.density == 1.0


def test_no_grid_is_one_setting():
    assert [job.config.seed for job in expand(Config(), {}, [1, 2])] == [1, 2]


def test_lists_are_values():
    assert parse_grid(["schedule.epochs=[30,60],[45]"]) == {"schedule.epochs": ["[30,60]", "[45]"]}


def test_the_folder_says_what_and_hashes_the_rest():
    job = Job(Config(seed=4))
    assert job.key.startswith("lenet300-sparse-momentum-0.05-s4-")
    assert job.key != Job(replace(Config(seed=4), epochs=3)).key
    assert job.key == Job(replace(Config(seed=4), checkpoint_seconds=1.0)).key
    assert "/" not in Job(replace(Config(), model="timm:a/b")).key


def test_runs_that_end_at_other_steps_have_folders_of_their_own():
    jobs = expand(Config(), parse_grid(["max_steps=0,100,200"]), [0])
    full, short, longer = (job.key for job in jobs)
    assert (short, longer) == (f"{full}-100", f"{full}-200")


def test_seeds_are_not_part_of_a_grid():
    with pytest.raises(ConfigurationError, match=r"--seeds 0,1,2 in place of --grid seed=0,1,2"):
        parse_grid(["seed=0,1,2"])


@pytest.mark.parametrize(
    ("second", "message"), [("density=0.3", "has density twice: give"), ("sparse.density=0.3", r"twice \(as density\)")]
)
def test_a_key_given_twice_is_refused(second, message):
    with pytest.raises(ConfigurationError, match=message):
        parse_grid(["density=0.1,0.2", second])


@pytest.mark.parametrize("text", ["density", "density=", "=0.1", "densiti=0.1"])
def test_wrong_grids_are_explained(text):
    with pytest.raises(ConfigurationError, match="key"):
        parse_grid([text])


@pytest.mark.parametrize("text", ["", "a", "1-b", "1,,2", "1-2-3"])
def test_wrong_seeds_are_explained(text):
    with pytest.raises(ConfigurationError, match="seeds are"):
        parse_seeds(text)


@pytest.mark.parametrize("text", ["0", "5-3"])
def test_no_seed_is_refused(text):
    with pytest.raises(ConfigurationError, match=f"'{text}' names no seed"):
        parse_seeds(text)
    with pytest.raises(ConfigurationError, match="at least one seed"):
        expand(Config(), {}, [])


def test_the_work_of_a_run_grows_with_its_network_and_length():
    small, large = Job(Config(model="lenet300")), Job(Config(model="lenet5"))
    assert 3 < large.work / small.work < 100
    assert Job(Config(model="lenet300", epochs=200)).work == 2 * small.work
    assert 0 < Job(Config(model="someone's own")).work < small.work, "of unknown size: the least that steps take"


def test_runs_that_measure_speed_ups_have_folders_of_their_own():
    plain, measured = Job(Config()), Job(Config(measure_speedup=True))
    assert plain.config.identity() == measured.config.identity()
    assert measured.key == f"{plain.key}-measured"
