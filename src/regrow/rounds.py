"""Ends of phases: a round of training and pruning (Han, lottery tickets), and the cut of an outcome to its budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regrow import attach
from regrow.errors import ConfigurationError, StateError
from regrow.topology import distribution as distributions

if TYPE_CHECKING:
    from regrow.handle import Handle
    from regrow.topology.outcome import Outcome


def end_round(handle: Handle) -> bool:
    """Prune to the next density and, for lottery tickets, put all weights back; False, changing nothing, once the target is reached."""
    rounds = handle.method.rounds
    if rounds is None:
        raise ConfigurationError(
            f"method {handle.method.name!r} has no rounds: rewind() belongs to lottery-ticket and han"
        )
    if handle.nonzeros <= distributions.budget(handle.settings.density, [handle.numel]):
        return False
    if rounds.rewind and not handle.rewind_weights:
        raise StateError(f"nothing to rewind to yet: step {rounds.rewind_step} was not reached in the first round")
    attach.refuse_replaced(handle.model, handle.parameters)
    density = max(handle.settings.density, rounds.keep ** (handle.round + 1))
    update = handle.network.open_update(handle.step, handle.network.counts_at(density))
    handle.network.commit(update, handle.method.update(update), window_stays_open=False)
    handle.round += 1
    for name, tensor in handle.model.state_dict().items():
        if name in handle.rewind_weights:
            tensor.copy_(handle.rewind_weights[name])
    for sparse in handle.parameters:
        sparse.mask_weight()
    handle.optimizer.state.clear()
    handle.step = rounds.rewind_step if rounds.rewind else 0
    return True


def cut_to_budget(handle: Handle, outcome: Outcome) -> None:
    """Bring an outcome to its budget; the weights that stay are trained as they are from here on."""
    network = handle.network
    update = network.open_update(handle.step, network.counts_at(handle.settings.density))
    network.commit(update, outcome.cut(update), window_stays_open=False)
    handle.finish()


def remember_rewind(handle: Handle) -> None:
    """Keep the weights of the step that rounds go back to."""
    rounds = handle.method.rounds
    if rounds is not None and rounds.rewind and handle.round == 0 and handle.step == rounds.rewind_step:
        # The whole state: running statistics of batch norm belong to the weights of their time.
        handle.rewind_weights = {name: tensor.detach().clone() for name, tensor in handle.model.state_dict().items()}
