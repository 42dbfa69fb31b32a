"""What a layer is to the kernels: windows that move over maps."""

from __future__ import annotations

from torch import nn

from regrow.execution.kernels.pattern import Geometry
from regrow.scope import is_inputs_first

Dense = nn.Linear | nn.Conv1d | nn.Conv2d


def geometry_of(module: Dense) -> Geometry:
    """The geometry of a layer; one-dimensional layers get a first axis of size one."""
    if isinstance(module, nn.Linear) or is_inputs_first(module):
        return Geometry()
    lift = (lambda pair, unit: (unit, *pair)) if isinstance(module, nn.Conv1d) else (lambda pair, unit: tuple(pair))
    kernel, stride, dilation = (lift(pair, 1) for pair in (module.kernel_size, module.stride, module.dilation))
    if module.padding == "same":
        total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        padding = (total[0] // 2, total[1] // 2, total[0] - total[0] // 2, total[1] - total[1] // 2)
    else:
        padding = (0, 0, 0, 0) if module.padding == "valid" else (*lift(module.padding, 0), *lift(module.padding, 0))
    return Geometry(kernel, stride, padding, dilation, module.groups)
