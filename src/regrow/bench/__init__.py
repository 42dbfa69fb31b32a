"""Benchmarks: sparse execution against dense torch at its fastest setting, in the same run."""
