"""To and from SciPy's and torch's sparse matrices."""

import pytest
import scipy.sparse
import torch

from regrow.errors import ConfigurationError, StateError
from regrow.shipping.convert import from_scipy, from_torch_csr, to_scipy, to_torch_csr
from regrow.shipping.packing import pack, unpack

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")


@pytest.mark.parametrize("density", [0.02, 0.4, 1.0])
@pytest.mark.parametrize("shape", [(7, 30), (6, 4, 3, 3), (5,)])
def test_there_and_back(shape, density):
    mask = torch.rand(shape) < density
    tensor = torch.randn(shape) * mask
    tensor.view(-1)[mask.view(-1).nonzero()[:2]] = 0.0
    packed = pack(tensor, mask)
    for there, back in ((to_scipy, from_scipy), (to_torch_csr, from_torch_csr)):
        full, found = unpack(back(there(packed), shape))
        assert torch.equal(full, tensor)
        assert torch.equal(found, mask)


def test_product_is_the_layers():
    weight, x = torch.randn(6, 9) * (torch.rand(6, 9) < 0.4), torch.randn(9)
    packed = pack(weight, weight != 0)
    assert torch.allclose(torch.from_numpy(to_scipy(packed) @ x.numpy()), weight @ x, atol=1e-6)
    assert torch.allclose(to_torch_csr(packed) @ x, weight @ x, atol=1e-6)


def test_unsorted_columns_are_put_in_order():
    matrix = scipy.sparse.csr_array(([1.0, 2.0], [3, 1], [0, 2]), shape=(1, 4))
    assert unpack(from_scipy(matrix))[0].tolist() == [[0.0, 2.0, 0.0, 1.0]]


def test_what_does_not_fit_is_refused():
    matrix = scipy.sparse.csr_array(([1.0, 2.0], [1, 1], [0, 2]), shape=(1, 4))
    with pytest.raises(StateError, match="do not rise"):
        from_scipy(matrix)
    with pytest.raises(ConfigurationError, match="no tensor of shape"):
        from_scipy(scipy.sparse.csr_array((2, 6)), (2, 5))
