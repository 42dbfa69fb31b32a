"""Two gloo processes agree, for every registered method."""

import regrow
from regrow.testing import check_ranks


def test_two_ranks_agree_for_every_method():
    check_ranks([method.name for method in regrow.list_methods(show=False)])
