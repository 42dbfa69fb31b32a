"""The native library: built where it can be."""

import shutil

import pytest

from regrow.execution import native


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler to build the kernels with")
def test_the_kernels_are_built_where_there_is_a_compiler():
    """Tests of kernels are skipped without them, and installation goes on: a mistake in the sources would pass unnoticed."""
    assert native.available()
