"""Registered operators, fuzzed in a child process."""

import pytest

from regrow import native
from tests.misuse import operators
from tests.misuse.child import python

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")


def fuzzed(first, count):
    """Calls that were made and refused, or the number of the call that ended the process."""
    done = python("-m", "tests.misuse.operators", str(first), str(count), timeout=600)
    last = done.stdout.splitlines()[-1] if done.stdout else "none"
    assert last.startswith("done"), f"call {last} ended the process ({done.returncode}): {done.stderr[-2000:]}"
    return int(last.split()[1]), int(last.split()[3])


def test_a_sample_of_calls_is_computed_or_refused():
    made, refused = fuzzed(0, 400)
    assert made == 400
    assert 100 < refused < 350  # both ways are taken


def test_a_gradient_without_dimensions_is_refused_also_where_it_has_no_memory():
    assert operators.call(3722) == ("sparse_input_gradient", True)


@pytest.mark.deep
@pytest.mark.parametrize("chunk", range(11))
def test_many_calls(chunk):
    assert fuzzed(1000 + 500 * chunk, 500)[0] == 500
