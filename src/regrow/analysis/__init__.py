"""Accounting of sparse networks: work, storage, activations."""
