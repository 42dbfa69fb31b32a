"""The networks whose steps the overhead is compared with: small definitions, shapes as published."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn


def lenet5_caffe() -> nn.Module:
    """LeNet-5-Caffe: 430,500 weights, input 1x28x28."""
    return nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10),
    )  # fmt: skip


def vgg16_d() -> nn.Module:
    """VGG16-D with batch norm for 32x32 images: 15,239,872 weights."""
    modules: list[nn.Module] = []
    width = 3
    for out in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0):
        if out == 0:
            modules.append(nn.MaxPool2d(2))
        else:
            modules += [nn.Conv2d(width, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
            width = out
    head = [layer for a, b in pairwise((512, 512, 512)) for layer in (nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU())]
    return nn.Sequential(*modules, nn.Flatten(), *head, nn.Linear(512, 10))


class _Bottleneck(nn.Module):
    """1x1, 3x3 (stride here), 1x1 convolutions around a shortcut."""

    def __init__(self, width: int, inner: int, stride: int) -> None:
        super().__init__()
        out = 4 * inner
        self.body = nn.Sequential(
            _conv(width, inner, 1), nn.ReLU(), _conv(inner, inner, 3, stride), nn.ReLU(), _conv(inner, out, 1)
        )
        self.shortcut = nn.Identity() if width == out and stride == 1 else _conv(width, out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Residual sum."""
        return torch.relu(self.body(x) + self.shortcut(x))


def _conv(width: int, out: int, kernel: int, stride: int = 1) -> nn.Module:
    return nn.Sequential(nn.Conv2d(width, out, kernel, stride, padding=kernel // 2, bias=False), nn.BatchNorm2d(out))


def resnet50() -> nn.Module:
    """ResNet-50 v1.5: 25,502,912 weights."""
    modules: list[nn.Module] = [_conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    width = 64
    for inner, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            modules.append(_Bottleneck(width, inner, stride if block == 0 else 1))
            width = 4 * inner
    return nn.Sequential(*modules, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000))


def weights(model: nn.Module) -> int:
    """Number of convolution and linear weights."""
    return sum(m.weight.numel() for m in model.modules() if isinstance(m, (nn.Conv2d, nn.Linear)))


class Bare(nn.Module):
    """The parameters of a model without its work: the "loss" is linear in them, so a step is little more than optimizer and hooks."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        shapes = [tuple(m.weight.shape) for m in model.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
        self.layers = nn.ModuleList(nn.Linear(1, 1, bias=False) for _ in shapes)
        for number, (layer, shape) in enumerate(zip(self.layers, shapes, strict=True)):
            layer.weight = nn.Parameter(torch.randn(shape) * 0.05)
            self.register_buffer(f"slope{number}", torch.randn(shape) * 1e-3)

    def forward(self) -> Tensor:
        """Sum of weight times slope."""
        products = (layer.weight.mul(getattr(self, f"slope{i}")).sum() for i, layer in enumerate(self.layers))
        return torch.stack(list(products)).sum()
