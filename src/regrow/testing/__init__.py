"""The conformance suite that every method passes, also for methods of your own.

import regrow.testing

regrow.testing.check_method("rigl")
regrow.testing.check_method(my_method)          # a regrow.Method
regrow.testing.check_ranks(["rigl", "set"])     # two processes, once for all names
"""

from regrow.testing.checks import CHECKS, ConformanceError, check_method
from regrow.testing.ranks import check_ranks
from regrow.testing.trial import Subject, Trial

__all__ = ["CHECKS", "ConformanceError", "Subject", "Trial", "check_method", "check_ranks"]
