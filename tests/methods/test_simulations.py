"""Whole runs against simulations written from the papers, and native steps against torch's own; many more in ``make soak``."""

import pytest

from regrow import native
from tests.support.simulations import compare, step_difference

needs_kernels = pytest.mark.skipif(not native.available(), reason="native kernels not built")


@pytest.mark.parametrize("execution", ["masked", pytest.param("sparse", marks=needs_kernels)])
@pytest.mark.parametrize("method", ["sparse-momentum", "rigl"])
def test_runs_equal_the_papers(method, execution):
    for number in range(4):
        difference = compare(method, number, execution)
        assert difference is not None, f"masks differ in case {number}"
        assert difference < 1e-9


@needs_kernels
def test_native_steps_equal_torch():
    for number in range(8):
        assert step_difference(number) < 1e-9


@pytest.mark.deep
@needs_kernels
@pytest.mark.parametrize("number", range(4, 60))
def test_many_runs_and_steps(number):
    for method in ("sparse-momentum", "rigl"):
        for execution in ("masked", "sparse"):
            difference = compare(method, number, execution)
            assert difference is not None
            assert difference < 1e-9
    assert step_difference(number) < 1e-9
