"""What a layer in compact storage shows of its weight: never less than was loaded, and never a write that is lost in silence."""

import copy
import threading

import pytest
import torch
from torch import nn

import regrow
from regrow import native
from regrow.errors import ExecutionWarning, StateError

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")
INPUTS = torch.randn(6, 20, generator=torch.Generator().manual_seed(0))


def sparse_network(seed, density=0.3):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    handle = regrow.sparsify(
        model,
        optimizer,
        "set",
        density=density,
        steps=40,
        update_every=4,
        execution="sparse",
        storage="compact",
        seed=seed,
    )
    return model, optimizer, handle


def step(model, optimizer):
    optimizer.zero_grad()
    model(INPUTS).square().sum().backward()
    optimizer.step()


def trained(seed=1):
    model, optimizer, handle = sparse_network(seed)
    for _ in range(6):
        step(model, optimizer)
    return model, handle


def outside():
    return pytest.warns(ExecutionWarning, match="lie outside its mask, so its layer computes dense")


def test_loaded_weights_are_computed_with_whole_before_their_masks_come():
    other, _ = trained()
    model, optimizer, _ = sparse_network(0)
    model.load_state_dict(other.state_dict())
    with outside():
        answers = model(INPUTS)
    torch.testing.assert_close(answers, other(INPUTS))
    with pytest.raises(StateError, match="lie outside its mask"):
        step(model, optimizer)


@pytest.mark.parametrize("compact", [False, True])
def test_loaded_weights_are_saved_again_whole(compact):
    other, _ = trained()
    model, _, _ = sparse_network(0)
    model.load_state_dict(other.state_dict())
    if compact:
        with regrow.compact_form():
            saved, expected = model.state_dict(), other.state_dict()
        assert torch.equal(saved["0.weight.values"], expected["0.weight.values"])
        assert torch.equal(saved["0.weight.columns"], expected["0.weight.columns"])
    assert all(torch.equal(tensor, other.state_dict()[name]) for name, tensor in model.state_dict().items())


def test_masks_are_taken_from_the_zeros_of_loaded_weights():
    other, theirs = trained()
    model, optimizer, handle = sparse_network(0)
    step(model, optimizer)
    model.load_state_dict(other.state_dict())
    handle.masks_from_zeros()
    assert all(torch.equal(mask, theirs.masks[name]) for name, mask in handle.masks.items())
    torch.testing.assert_close(model(INPUTS), other(INPUTS))
    step(model, optimizer)


def test_masks_that_come_after_a_pass_bring_the_loaded_weights():
    other, theirs = trained()
    model, _, handle = sparse_network(1)
    model.load_state_dict(other.state_dict())
    with outside():
        model(INPUTS)
    handle.load_state_dict(theirs.state_dict())
    assert torch.equal(model(INPUTS), other(INPUTS))


@pytest.mark.parametrize(
    "write",
    [nn.init.kaiming_normal_, lambda weight: weight.detach().zero_(), lambda weight: weight.detach()[0].mul_(2)],
)
def test_a_write_to_the_weight_is_refused_by_the_next_pass(write):
    model, _, _ = sparse_network(0)
    write(model[0].weight)
    with pytest.raises(StateError, match=r"layer 0: its weight was written to.*made for reading"):
        model(INPUTS)


REPLACE = {
    "set": lambda model, dense: setattr(model[0], "weight", dense),
    "register": lambda model, dense: model[0].register_parameter("weight", dense),
    "assign": lambda model, dense: model.load_state_dict(model.state_dict(), assign=True),
}


@pytest.mark.parametrize("how", REPLACE)
def test_a_weight_is_not_replaced(how):
    model, optimizer, _ = sparse_network(0)
    before, answers = model[0]._parameters["weight"], model(INPUTS)
    dense = nn.Parameter(torch.randn(16, 20))
    with pytest.raises(
        (StateError, RuntimeError), match="layer 0: its weight is stored compact and cannot be replaced"
    ):
        REPLACE[how](model, dense)
    assert model[0]._parameters["weight"] is before
    assert torch.equal(model(INPUTS), answers)
    step(model, optimizer)


def test_a_later_write_to_a_weight_that_was_read_before_a_pass_is_refused_too():
    model, _, _ = sparse_network(0)
    weight = model[0].weight.detach()
    shown = model[0].weight
    model(INPUTS)
    with torch.no_grad():
        shown.zero_()
    with pytest.raises(StateError, match="written to"):
        model(INPUTS)
    assert weight.any()


def test_reading_saving_and_penalties_are_no_writes():
    model, optimizer, _ = sparse_network(0)
    state = model.state_dict()
    state["0.weight"].zero_()
    copied = copy.deepcopy(model)
    nn.init.zeros_(copied[0].weight)
    with torch.inference_mode():
        model[0].weight.clone()
    (model(INPUTS).sum() + model[0].weight.square().sum()).backward()
    optimizer.step()
    assert model(INPUTS).isfinite().all()
    assert not model[0]._regrow_execution.lent._counts


def test_no_other_thread_computes_with_new_weights_at_old_positions():
    model, optimizer, handle = sparse_network(0)
    listeners, answers, threads = handle.network.mask_listeners, [], []
    place = listeners.index(handle.switch.refresh)

    def compute():
        with torch.no_grad():
            answers.append(model(INPUTS))

    def refresh():
        """Weights have moved by now, and layers do not know their positions yet."""
        threads.append(threading.Thread(target=compute))
        threads[-1].start()
        threads[-1].join(0.2)
        handle.switch.refresh()

    listeners[place] = refresh
    while not handle.updates:
        step(model, optimizer)
    threads[0].join()
    assert len(threads) == len(answers) == 1
    assert torch.equal(answers[0], model(INPUTS))
