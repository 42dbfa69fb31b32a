"""Signals that ask a program to end are answered for a while, then given back."""

import os
import signal

import pytest

from regrow.signals import on_request_to_end


def fail_when_asked(number, frame):
    raise ZeroDivisionError(number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_they_are_answered_and_given_back_whatever_is_raised(number):
    before = signal.getsignal(number)
    with pytest.raises(ZeroDivisionError, match=str(int(number))), on_request_to_end(fail_when_asked):
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before
