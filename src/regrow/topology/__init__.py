"""The cycle on masks: prune -> redistribute -> grow, as pure functions on tensors and counts."""
