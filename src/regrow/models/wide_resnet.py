"""Wide residual networks for CIFAR (Zagoruyko & Komodakis, 2016), with pre-activation basic blocks."""

from __future__ import annotations

from torch import Tensor, nn

from regrow.models.shapes import Shape


class Block(nn.Module):
    """out = conv2(dropout(relu(bn2(conv1(a))))) + shortcut with a = relu(bn1(x)).

    The shortcut is x itself; where the number of channels changes it is a 1x1 convolution of a.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.relu1 = nn.ReLU()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.relu2 = nn.ReLU()
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.shortcut: nn.Conv2d | None = None
        if in_channels != out_channels:
            self.shortcut = nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """One residual step."""
        activated = self.relu1(self.bn1(x))
        out = self.relu2(self.bn2(self.conv1(activated)))
        out = self.conv2(self.dropout(out))
        return out + (x if self.shortcut is None else self.shortcut(activated))


class WideResNet(nn.Module):
    """conv1 -> three groups of blocks (16k, 32k, 64k channels) -> BN -> ReLU -> average pool -> fc."""

    def __init__(self, in_channels: int, num_classes: int, blocks: int, width: int, dropout: float) -> None:
        super().__init__()
        widths = (16, 16 * width, 32 * width, 64 * width)
        self.conv1 = nn.Conv2d(in_channels, widths[0], 3, padding=1, bias=False)
        self.block1 = _group(widths[0], widths[1], blocks, stride=1, dropout=dropout)
        self.block2 = _group(widths[1], widths[2], blocks, stride=2, dropout=dropout)
        self.block3 = _group(widths[2], widths[3], blocks, stride=2, dropout=dropout)
        self.bn1 = nn.BatchNorm2d(widths[3])
        self.relu = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.fc = nn.Linear(widths[3], num_classes)
        _initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of images."""
        x = self.block3(self.block2(self.block1(self.conv1(x))))
        return self.fc(self.flatten(self.pool(self.relu(self.bn1(x)))))


def _group(in_channels: int, out_channels: int, blocks: int, stride: int, dropout: float) -> nn.Sequential:
    first = Block(in_channels, out_channels, stride, dropout)
    return nn.Sequential(first, *(Block(out_channels, out_channels, 1, dropout) for _ in range(blocks - 1)))


def _initialise(model: nn.Module) -> None:
    """He normal by fan-out (std sqrt(2 / (k*k*out_channels))) for convolutions, zero bias in the linear layer."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)


def wide_resnet(
    input_shape: Shape = (3, 32, 32), num_classes: int = 10, depth: int = 28, width: int = 2, dropout: float = 0.3
) -> WideResNet:
    """WRN-depth-width.

    Args:
        input_shape: one sample, channels first; any image size, the last pooling is global (8x8 for 32x32 images).
        num_classes: outputs.
        depth: 6n + 4 for n blocks per group.
        width: factor k on the channels.
        dropout: rate before the second convolution of a block; 0.3 in sparse momentum's code, 0 in DSR's.
    """
    blocks, rest = divmod(depth - 4, 6)
    if rest or blocks < 1:
        raise ValueError(f"depth of a wide residual network must be 6n + 4 (10, 16, 22, 28, ...), not {depth}")
    return WideResNet(input_shape[0], num_classes, blocks, width, dropout)
