"""Data without torchvision: MNIST, CIFAR-10, ImageNet folders, and your own.

    >>> from regrow import data
    >>> train = data.load("mnist-sample")
    >>> for images, labels in train.batches(epoch=0, batch_size=1200, seed=0):
    ...     print(tuple(images.shape), tuple(labels.shape))
    (1200, 1, 28, 28) (1200,)
    (1200, 1, 28, 28) (1200,)
    (1200, 1, 28, 28) (1200,)

Order and augmentation are pure functions of (seed, epoch, sample): any batch can be produced directly, on any rank.
Importing this package does not import torch.
"""

from regrow.data.arrays import Normalisation
from regrow.data.catalogue import DatasetInfo, list_datasets
from regrow.data.dataset import Dataset
from regrow.data.errors import DataError, FetchError
from regrow.data.fetch import get
from regrow.data.loading import Form, form_of, load

__all__ = [
    "DataError",
    "Dataset",
    "DatasetInfo",
    "FetchError",
    "Form",
    "Normalisation",
    "form_of",
    "get",
    "list_datasets",
    "load",
]
