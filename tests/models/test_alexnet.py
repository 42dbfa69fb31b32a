from torch import nn

from regrow import models


def test_batch_norm_precedes_every_relu():
    model = models.create("alexnet-s")
    modules = list(model.children())
    relus = [i for i, module in enumerate(modules) if isinstance(module, nn.ReLU)]
    assert len(relus) == 7
    assert all(isinstance(modules[i - 1], nn.BatchNorm1d | nn.BatchNorm2d) for i in relus)


def test_every_convolution_has_stride_2_and_nothing_pools():
    model = models.create("alexnet-b")
    assert {m.stride for m in model.modules() if isinstance(m, nn.Conv2d)} == {(2, 2)}
    assert not [m for m in model.modules() if isinstance(m, nn.MaxPool2d | nn.Dropout)]
