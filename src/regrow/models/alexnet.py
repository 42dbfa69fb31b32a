"""AlexNet for CIFAR-10, in the two widths of the SNIP paper."""

from __future__ import annotations

import math
from collections import OrderedDict

from torch import nn

from regrow.models.shapes import Shape, after_conv

# (output channels, kernel, padding); every convolution has stride 2 and there is no pooling.
CONVOLUTIONS = ((96, 11, 2), (256, 5, 2), (384, 3, 1), (384, 3, 1), (256, 3, 1))


def alexnet(input_shape: Shape = (3, 32, 32), num_classes: int = 10, hidden: int = 1024) -> nn.Sequential:
    """Five strided convolutions and three linear layers, batch norm before each ReLU; PyTorch's default initialisation.

    Args:
        input_shape: one sample, channels first; 32x32 shrinks to 13, 7, 4, 2, 1.
        num_classes: outputs.
        hidden: width of the classifier, 1024 in AlexNet-s and 2048 in AlexNet-b.
    """
    layers = OrderedDict[str, nn.Module]()
    shape = input_shape
    for i, (channels, kernel, padding) in enumerate(CONVOLUTIONS, start=1):
        layers[f"conv{i}"] = nn.Conv2d(shape[0], channels, kernel, stride=2, padding=padding)
        layers[f"bn{i}"] = nn.BatchNorm2d(channels)
        layers[f"relu{i}"] = nn.ReLU()
        shape = after_conv(shape, channels, kernel, stride=2, padding=padding)

    layers["flatten"] = nn.Flatten()
    layers["fc1"] = nn.Linear(math.prod(shape), hidden)
    layers["fc1_bn"] = nn.BatchNorm1d(hidden)
    layers["fc1_relu"] = nn.ReLU()
    layers["fc2"] = nn.Linear(hidden, hidden)
    layers["fc2_bn"] = nn.BatchNorm1d(hidden)
    layers["fc2_relu"] = nn.ReLU()
    layers["fc3"] = nn.Linear(hidden, num_classes)
    return nn.Sequential(layers)
