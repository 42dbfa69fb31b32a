"""LeNet-300-100 and LeNet-5-Caffe, the MNIST networks."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from regrow.errors import unknown
from regrow.models.shapes import Shape, after_conv, after_pool


def lenet300(input_shape: Shape = (1, 28, 28), num_classes: int = 10, initial: str = "torch") -> nn.Sequential:
    """flatten -> fc1 -> ReLU -> fc2 -> ReLU -> fc3.

    Args:
        input_shape: one sample, channels first.
        num_classes: outputs.
        initial: `torch` (PyTorch's default initialisation, as in sparse momentum's code) or `xavier` (as in its algorithm 1).
    """
    channels, height, width = input_shape
    layers = OrderedDict[str, nn.Module](
        flatten=nn.Flatten(),
        fc1=nn.Linear(channels * height * width, 300),
        relu1=nn.ReLU(),
        fc2=nn.Linear(300, 100),
        relu2=nn.ReLU(),
        fc3=nn.Linear(100, num_classes),
    )
    return initialised(nn.Sequential(layers), initial)


def lenet300_bn(input_shape: Shape = (1, 28, 28), num_classes: int = 10) -> nn.Sequential:
    """DSR's LeNet-300-100: no biases, batch norm after all three linear layers, the last included."""
    channels, height, width = input_shape
    layers = OrderedDict[str, nn.Module](
        flatten=nn.Flatten(),
        fc1=nn.Linear(channels * height * width, 300, bias=False),
        bn1=nn.BatchNorm1d(300),
        relu1=nn.ReLU(),
        fc2=nn.Linear(300, 100, bias=False),
        bn2=nn.BatchNorm1d(100),
        relu2=nn.ReLU(),
        fc3=nn.Linear(100, num_classes, bias=False),
        bn3=nn.BatchNorm1d(num_classes),
    )
    return nn.Sequential(layers)


def lenet5(
    input_shape: Shape = (1, 28, 28), num_classes: int = 10, conv_relu: bool = True, initial: str = "torch"
) -> nn.Sequential:
    """LeNet-5-Caffe: conv 20@5x5, pool, ReLU, conv 50@5x5, pool, ReLU, fc 500, ReLU, fc.

    Sparse momentum's code has each ReLU before its max pooling. The two commute, values and gradients, and on the pooled
    map a ReLU is a quarter of the work: a dense step takes four fifths of the time.

    Args:
        input_shape: one sample, channels first.
        num_classes: outputs.
        conv_relu: ReLU behind the convolutions, as in sparse momentum's code; False is the form of Caffe and SNIP, whose
            only ReLU follows the first linear layer. The parameters are the same.
        initial: as in `lenet300`.
    """
    shape = after_pool(after_conv(input_shape, 20, kernel=5))
    channels, height, width = after_pool(after_conv(shape, 50, kernel=5))
    layers = OrderedDict[str, nn.Module]()
    layers["conv1"] = nn.Conv2d(input_shape[0], 20, 5)
    layers["pool1"] = nn.MaxPool2d(2)
    if conv_relu:
        layers["relu1"] = nn.ReLU()
    layers["conv2"] = nn.Conv2d(20, 50, 5)
    layers["pool2"] = nn.MaxPool2d(2)
    if conv_relu:
        layers["relu2"] = nn.ReLU()
    layers["flatten"] = nn.Flatten()
    layers["fc3"] = nn.Linear(channels * height * width, 500)
    layers["relu3"] = nn.ReLU()
    layers["fc4"] = nn.Linear(500, num_classes)
    return initialised(nn.Sequential(layers), initial)


def initialised(network: nn.Sequential, initial: str) -> nn.Sequential:
    """The network with weights as torch drew them, or drawn anew by Xavier's uniform rule; biases stay."""
    if initial not in ("torch", "xavier"):
        raise unknown("initialisation", initial, ("torch", "xavier"))
    for layer in network if initial == "xavier" else ():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.xavier_uniform_(layer.weight)
    return network
