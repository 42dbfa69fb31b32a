"""Two gloo ranks: the same masks everywhere, equal to one process with the whole batch, or a loud stop."""

import pytest
import torch

from regrow import native
from regrow.ranks import Ranks, fingerprint
from tests.support import two_ranks
from tests.support.training import loss_of


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    torch.multiprocessing.spawn(two_ranks.work, args=(str(folder),), nprocs=2)
    return [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.fixture(scope="module")
def single():
    return {name: two_ranks.run(None, method=name) for name in ("sparse-momentum", "rigl")}


@pytest.mark.parametrize("scenario", ["plain", "rigl", "bucket views", "sparsify first", "accumulation"])
def test_ranks_agree_and_equal_one_process(both, single, scenario):
    first, second = (results[scenario] for results in both)
    alone = single["rigl" if scenario == "rigl" else "sparse-momentum"]
    assert torch.equal(first["masks"], second["masks"])
    assert torch.equal(first["weights"], second["weights"])
    assert first["updates"] == alone["updates"] >= 3
    assert torch.equal(first["masks"], alone["masks"])
    torch.testing.assert_close(first["weights"], alone["weights"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("scenario", ["compact", "compact rigl", "compact accumulation"])
def test_compact_storage_on_two_ranks_equals_one_process(both, single, scenario):
    first, second = (results[scenario] for results in both)
    alone = single["rigl" if "rigl" in scenario else "sparse-momentum"]
    assert torch.equal(first["masks"], second["masks"])
    assert torch.equal(first["weights"], second["weights"])
    assert torch.equal(first["masks"], alone["masks"])
    torch.testing.assert_close(first["weights"], alone["weights"], rtol=1e-9, atol=1e-12)


def test_candidates_on_two_ranks_are_those_of_one_process(both, single):
    first, second = (results["compact candidates"] for results in both)
    alone = two_ranks.run(None, sparse=two_ranks.CANDIDATES)
    assert torch.equal(first["masks"], second["masks"])
    assert torch.equal(first["weights"], second["weights"])
    assert torch.equal(first["masks"], alone["masks"])
    torch.testing.assert_close(first["evidence"], alone["evidence"], rtol=1e-9, atol=1e-12)
    assert len(alone["evidence"]) < single["sparse-momentum"]["evidence"].numel()


def test_masks_are_compared_at_the_start_and_at_every_update(both):
    for results in both:
        assert results["plain"]["compared"] == results["plain"]["updates"] + 1


def test_growth_evidence_is_the_average_over_ranks(both, single):
    for results in both:
        torch.testing.assert_close(
            results["plain"]["evidence"], single["sparse-momentum"]["evidence"], rtol=1e-9, atol=1e-12
        )
        torch.testing.assert_close(
            results["accumulation"]["evidence"], single["sparse-momentum"]["evidence"], rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize("argument", ["seed", "update_every", "execution", "sparse layers", "grow"])
def test_different_arguments_stop_every_rank_before_anything_changes(both, argument):
    for results in both:
        found = results[f"different {argument}"]
        assert f"ranks differ in {argument}: " in found["error"]
        assert "same arguments on every rank" in found["error"]
        assert found["untouched"] == 16 * 12


def test_drifting_ranks_stop_at_the_update(both):
    for results in both:
        assert "masks differ between ranks at topology update 0 (step 4)" in results["drifting"]["error"]
        assert results["drifting"]["step"] == 4
        assert results["drifting"]["kept"]


def test_ranks_may_be_ignored(both):
    assert [results["alone"]["size"] for results in both] == [1, 1]
    assert not torch.equal(both[0]["alone"]["masks"], both[1]["alone"]["masks"])


def test_calibration_is_averaged(both):
    assert torch.equal(both[0]["calibrated"]["masks"], both[1]["calibrated"]["masks"])
    model = two_ranks.network()
    scores = [m.weight for m in model[::2]]
    whole = torch.autograd.grad(loss_of(model, two_ranks.data(count=1)[0]), scores)
    products = torch.cat([(w * g).abs().flatten() for w, g in zip(scores, whole, strict=True)])
    kept = both[0]["calibrated"]["masks"]
    assert products[kept].min() >= products[~kept].max() * (1 - 1e-5)


@pytest.mark.skipif(not native.available(), reason="native kernels not built")
@pytest.mark.parametrize(
    ("scenario", "chosen"), [("sparse wins on rank 0", ["0", "10", "4", "8"]), ("dense wins on rank 0", [])]
)
def test_auto_takes_the_decision_of_the_first_rank(both, scenario, chosen):
    first, second = (results[scenario] for results in both)
    assert first["sparse"] == second["sparse"] == chosen
    assert first["decision"] == second["decision"]
    assert first["decisions"] == second["decisions"] >= 1
    assert first["updates"] == second["updates"] == 2
    assert torch.equal(first["masks"], second["masks"])
    assert torch.equal(first["weights"], second["weights"])


@pytest.mark.skipif(not native.available(), reason="native kernels not built")
def test_measured_costs_are_those_of_the_first_rank(both):
    first, second = (results["priced"] for results in both)
    assert first["costs"] == second["costs"]
    counts = [round(0.3 * n) for n in (216, 864, 192, 80)]
    assert [cost * n for cost, n in zip(first["costs"], counts, strict=True)] == pytest.approx([5, 5, 2, 2], rel=0.05)
    assert first["updates"] == second["updates"] == 2
    assert torch.equal(first["masks"], second["masks"])


def test_without_a_process_group_there_is_one_rank():
    ranks = Ranks()
    assert ranks.size == 1
    tensor = torch.ones(3)
    assert ranks.average(tensor) is tensor
    ranks.agree([tensor > 0], "now")


def test_fingerprints_tell_masks_apart():
    masks = [torch.rand(5, 7) > 0.5, torch.rand(4) > 0.5]
    flipped = [masks[0].clone(), masks[1].clone()]
    flipped[1][2] ^= True
    assert fingerprint(masks) == fingerprint([m.clone() for m in masks])
    assert fingerprint(masks) != fingerprint(flipped)


def test_the_first_rank_is_everybody_where_there_is_one():
    assert Ranks().first({"a": 1}) == {"a": 1}


def test_both_ranks_hold_the_value_of_the_first(both):
    assert [results["first"] for results in both] == [{"rank": 0}, {"rank": 0}]
