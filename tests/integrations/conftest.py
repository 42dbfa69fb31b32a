"""Other people's training loops, with no adapter in between."""

import torch

_LIBRARIES = []


def _repair_torchvision():
    """A CUDA build of torchvision beside a CPU build of torch does not import for want of two operators; define them."""
    try:
        import torchvision  # noqa: F401
    except ImportError:
        return
    except RuntimeError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _LIBRARIES.append(library)


_repair_torchvision()
