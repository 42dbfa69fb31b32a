"""Accounting of sparse networks (work, storage, activations), and the statistics of results."""
