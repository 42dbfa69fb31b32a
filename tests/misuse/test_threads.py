"""Several Python threads use one model."""

import pytest

from regrow import native
from tests.misuse.child import python

pytestmark = pytest.mark.skipif(not native.available(), reason="native kernels not built")

EXIT = """
import threading, time, torch, regrow
from torch import nn
m = nn.Linear(512, 512); o = torch.optim.SGD(m.parameters(), 0.1)
regrow.sparsify(m, o, "static", density=0.2, execution="sparse"); x = torch.randn(64, 512)
started = threading.Event()
def go():
    with torch.no_grad():
        while True:
            m(x)
            started.set()
threading.Thread(target=go, daemon=True).start()
started.wait()
"""


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", ["infer", "train"])
def test_threads(kind, seed):
    done = python("-m", "tests.misuse.threads", kind, str(seed))
    assert done.returncode == 0, done.stderr


def test_exit_while_a_daemon_thread_computes():
    # torch itself may abort there; reading lists that were freed would be a segmentation fault.
    assert python("-c", EXIT).returncode in (0, -6)
