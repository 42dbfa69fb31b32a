"""Shape arithmetic of convolutions and pooling, so that models fit any input size."""

Shape = tuple[int, int, int]


def after_conv(shape: Shape, out_channels: int, kernel: int, stride: int = 1, padding: int = 0) -> Shape:
    """Output shape (channels, height, width) of a square convolution.

    >>> after_conv((3, 32, 32), 96, kernel=11, stride=2, padding=2)
    (96, 13, 13)
    """
    _, height, width = shape
    height, width = ((size + 2 * padding - kernel) // stride + 1 for size in (height, width))
    if height < 1 or width < 1:
        raise ValueError(
            f"a {kernel}x{kernel} convolution does not fit into a map of {shape[1]}x{shape[2]}: use larger images"
        )
    return out_channels, height, width


def after_pool(shape: Shape, size: int = 2) -> Shape:
    """Output shape of a max-pool whose stride is its size."""
    return after_conv(shape, shape[0], kernel=size, stride=size)
