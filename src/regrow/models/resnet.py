"""ResNet-50 v1.5 for ImageNet (He et al., 2015; v1.5 moves the stride to the 3x3 convolution)."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from regrow.models.shapes import Shape

EXPANSION = 4
Init = Literal["fan_out", "fan_in"]


class Bottleneck(nn.Module):
    """1x1 reduce -> 3x3 (with the stride) -> 1x1 expand, plus a shortcut, projected in the first block of a stage."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        out_channels = EXPANSION * channels
        self.conv1 = nn.Conv2d(in_channels, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(channels, channels, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu2 = nn.ReLU()
        self.conv3 = nn.Conv2d(channels, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.projects = stride != 1 or in_channels != out_channels
        if self.projects:
            self.downsample = nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False)
            self.downsample_bn = nn.BatchNorm2d(out_channels)
        self.relu3 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """One residual step."""
        out = self.relu1(self.bn1(self.conv1(x)))
        out = self.relu2(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return self.relu3(out + (self.downsample_bn(self.downsample(x)) if self.projects else x))


class ResNet(nn.Module):
    """conv1 7x7/2 -> BN -> ReLU -> max-pool 3x3/2 -> four stages of bottlenecks -> average pool -> fc."""

    def __init__(self, in_channels: int, num_classes: int, blocks: tuple[int, int, int, int]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _stage(64, 64, blocks[0], stride=1)
        self.layer2 = _stage(256, 128, blocks[1], stride=2)
        self.layer3 = _stage(512, 256, blocks[2], stride=2)
        self.layer4 = _stage(1024, 512, blocks[3], stride=2)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.fc = nn.Linear(512 * EXPANSION, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of images."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.flatten(self.pool(x)))


def _stage(in_channels: int, channels: int, blocks: int, stride: int) -> nn.Sequential:
    first = Bottleneck(in_channels, channels, stride)
    return nn.Sequential(first, *(Bottleneck(EXPANSION * channels, channels, 1) for _ in range(blocks - 1)))


def resnet50(input_shape: Shape = (3, 224, 224), num_classes: int = 1000, init: Init = "fan_out") -> ResNet:
    """ResNet-50 v1.5.

    Args:
        input_shape: one sample, channels first; any image size from 32 pixels on.
        num_classes: outputs.
        init: He normal convolutions by `fan_out` (sparse momentum's baseline) or `fan_in` (its tuned setting).
    """
    if init not in ("fan_out", "fan_in"):
        raise ValueError(f"init of ResNet-50 must be 'fan_out' or 'fan_in', not {init!r}")
    model = ResNet(input_shape[0], num_classes, (3, 4, 6, 3))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode=init, nonlinearity="relu")
    return model
