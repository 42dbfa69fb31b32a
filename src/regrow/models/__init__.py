"""The networks of the sparse-training literature, exact to the last parameter.

Every model returns **logits**; train with cross-entropy, which is the papers' negative log-likelihood of log-softmax
outputs. Importing this package does not import torch: models are built on demand.

    >>> from regrow import models
    >>> models.info("lenet300").input_shape
    (1, 28, 28)
"""

from regrow.models.registry import ModelInfo, UnknownModelError, create, info, list_models, register

__all__ = ["ModelInfo", "UnknownModelError", "create", "info", "list_models", "register"]
