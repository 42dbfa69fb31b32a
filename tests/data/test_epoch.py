import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regrow.data.epoch import Epoch, count_steps

SIZES = {"samples": st.integers(1, 300), "batch_size": st.integers(1, 60)}


@pytest.mark.parametrize(
    ("samples", "batch_size", "steps"), [(54_000, 100, 540), (45_000, 128, 352), (1_281_167, 256, 5005), (10, 100, 1)]
)
def test_steps_of_the_papers(samples, batch_size, steps):
    assert count_steps(samples, batch_size) == steps


@given(**SIZES, world=st.integers(1, 7), seed=st.integers(), epoch=st.integers(0, 500), shuffle=st.booleans())
def test_ranks_together_see_every_sample_once(samples, batch_size, world, seed, epoch, shuffle):
    try:
        plans = [Epoch(samples, batch_size, epoch, seed, 0, rank, world, shuffle) for rank in range(world)]
    except ValueError:
        tail = samples % batch_size or batch_size
        assert shuffle
        assert min(tail, batch_size, samples) < world
        return
    seen = np.concatenate([plan.order()[start:stop] for plan in plans for start, stop in plan])
    assert sorted(seen.tolist()) == list(range(samples))
    for step in range(plans[0].steps):
        shares = [plan.bounds(step) for plan in plans]
        whole = Epoch(samples, batch_size, epoch, seed).bounds(step)
        assert [start for start, _ in shares[1:]] == [stop for _, stop in shares[:-1]]
        assert (shares[0][0], shares[-1][1]) == whole
        sizes = [stop - start for start, stop in shares]
        assert max(sizes) - min(sizes) <= 1


@given(**SIZES, data=st.data())
def test_any_position_is_reached_directly(samples, batch_size, data):
    whole = list(Epoch(samples, batch_size, seed=3))
    start = data.draw(st.integers(0, len(whole)))
    assert list(Epoch(samples, batch_size, seed=3, start_step=start)) == whole[start:]


def test_order_depends_on_seed_and_epoch_only():
    order = Epoch(1000, 10, epoch=1, seed=5).order()
    assert np.array_equal(order, Epoch(1000, 7, epoch=1, seed=5, rank=1, world=2).order())
    assert not np.array_equal(order, Epoch(1000, 10, epoch=2, seed=5).order())
    assert not np.array_equal(order, Epoch(1000, 10, epoch=1, seed=6).order())
    assert np.array_equal(Epoch(1000, 10, shuffle=False).order(), np.arange(1000))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, not 0"),
        ({"batch_size": 10, "rank": 2, "world": 2}, "rank must be in 0 .. world - 1 = 1, not 2"),
        ({"batch_size": 10, "start_step": 12}, r"start_step must be in 0 .. 11 .*, not 12"),
        (
            {"batch_size": 10, "world": 6},
            "a batch of 5 samples cannot be shared by 6 ranks: change batch_size .now 10, for 105 samples.$",
        ),
        ({"batch_size": 3, "world": 4}, "a batch of 3 samples cannot be shared by 4 ranks"),
    ],
)
def test_impossible_plans(arguments, message):
    with pytest.raises(ValueError, match=message):
        Epoch(105, **arguments)


def test_evaluation_may_leave_a_rank_without_samples():
    plan = Epoch(101, 100, rank=0, world=2, shuffle=False)
    assert [stop - start for start, stop in plan] == [50, 0]
