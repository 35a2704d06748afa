"""A partition as a PyTorch dataset that a DataLoader may read with any number of processes."""

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from partwise.connector.batch_reader import BatchReader
from partwise.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor


class TorchRows:
    """What `DataConnector.to_torch_dataset` returns: an `IterableDataset` of dictionaries."""

    def __init__(self, reader: BatchReader, epoch: "Tensor") -> None:
        self._reader = reader
        self._epoch = epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the shuffle of the next pass over the dataset, also of workers that stay alive.

        Args:
            epoch: Its number, 0 or more. One number is one order, in any process.

        Raises:
            InputError: The number is negative.

        Example:
            >>> for epoch in range(10):
            ...     dataset.set_epoch(epoch)
            ...     for batch in DataLoader(dataset, batch_size=None, num_workers=2): ...
        """
        if epoch < 0:
            raise InputError(f"set_epoch({epoch}) cannot seed a shuffle: pass 0 or more.")
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        if self._reader.single:
            # A DataLoader would count too few batches: each worker makes its own of its rows.
            raise TypeError("A dataset of single rows has no length here: pass batch_size.")
        return self._reader.order.batches

    def __iter__(self) -> Iterator[dict[str, Any]]:
        from torch.utils.data import get_worker_info

        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        for values in self._reader.read(int(self._epoch), worker, workers):
            yield {name: _tensor(value) for name, value in values.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return torch_dataset, (self._reader, self._epoch)


def _tensor(value: Any) -> Any:
    import torch

    if isinstance(value, np.ndarray | np.generic):
        # A copy: rows may lie in a file that is mapped for reading, and a batch goes to another
        # process with all of the storage that it is a view of.
        return torch.from_numpy(np.array(value))
    if isinstance(value, list):
        return [_tensor(item) if isinstance(item, np.ndarray) else item for item in value]
    return value


@cache
def _dataset_class() -> type[Any]:
    from torch.utils.data import IterableDataset

    # A DataLoader asks for this base; it is not a base of `TorchRows`, since torch is an extra.
    return type("TorchDataset", (TorchRows, IterableDataset), {"__doc__": TorchRows.__doc__})


def torch_dataset(reader: BatchReader, epoch: "Tensor | None" = None) -> Any:
    """Make the dataset of a reader.

    `epoch` is that of another dataset, if this is a copy of it.
    """
    try:
        import torch
    except ImportError as error:
        raise InputError(
            "to_torch_dataset() needs PyTorch, which is not installed: "
            "pip install 'partwise[torch]'."
        ) from error
    # In shared memory: workers that outlive an epoch see there what `set_epoch` writes.
    shared = torch.zeros((), dtype=torch.int64) if epoch is None else epoch
    return _dataset_class()(reader, shared.share_memory_())
