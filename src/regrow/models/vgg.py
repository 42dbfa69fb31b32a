"""VGG16 for CIFAR-10: configurations D and C, and the smaller "like"."""

from __future__ import annotations

import math
from collections import OrderedDict

from torch import nn

from regrow.models.shapes import Shape, after_conv, after_pool

WIDTHS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
HIDDEN = 512


def vgg16_d(input_shape: Shape = (3, 32, 32), num_classes: int = 10) -> nn.Sequential:
    """Thirteen 3x3 convolutions and three linear layers."""
    return _vgg16(input_shape, num_classes, hidden_layers=2)


def vgg16_like(input_shape: Shape = (3, 32, 32), num_classes: int = 10) -> nn.Sequential:
    """The convolutions of D and two linear layers."""
    return _vgg16(input_shape, num_classes, hidden_layers=1)


def vgg16_c(input_shape: Shape = (3, 32, 32), num_classes: int = 10, pad_1x1: bool = True) -> nn.Sequential:
    """D with 1x1 instead of 3x3 kernels in the third convolution of the last three groups.

    Args:
        input_shape: one sample, channels first.
        num_classes: outputs.
        pad_1x1: pad the 1x1 convolutions by one pixel, which enlarges each map by two. Sparse momentum's published
            results come from this form; SNIP's own network does not pad. The classifier's first layer differs in size.
    """
    return _vgg16(input_shape, num_classes, hidden_layers=2, third_kernel=1, third_padding=int(pad_1x1))


def _vgg16(
    shape: Shape, num_classes: int, hidden_layers: int, third_kernel: int = 3, third_padding: int = 1
) -> nn.Sequential:
    """conv -> BN -> ReLU, max-pool after each group; classifier fc -> ReLU -> BN; default initialisation."""
    layers = OrderedDict[str, nn.Module]()
    number = 0
    for group, widths in enumerate(WIDTHS, start=1):
        for place, channels in enumerate(widths):
            number += 1
            kernel, padding = (third_kernel, third_padding) if place == 2 else (3, 1)
            layers[f"conv{number}"] = nn.Conv2d(shape[0], channels, kernel, padding=padding)
            layers[f"bn{number}"] = nn.BatchNorm2d(channels)
            layers[f"relu{number}"] = nn.ReLU()
            shape = after_conv(shape, channels, kernel, padding=padding)
        layers[f"pool{group}"] = nn.MaxPool2d(2)
        shape = after_pool(shape)

    layers["flatten"] = nn.Flatten()
    features = math.prod(shape)
    for i in range(1, hidden_layers + 1):
        layers[f"fc{i}"] = nn.Linear(features, HIDDEN)
        layers[f"fc{i}_relu"] = nn.ReLU()
        layers[f"fc{i}_bn"] = nn.BatchNorm1d(HIDDEN)
        features = HIDDEN
    layers[f"fc{hidden_layers + 1}"] = nn.Linear(features, num_classes)
    return nn.Sequential(layers)
