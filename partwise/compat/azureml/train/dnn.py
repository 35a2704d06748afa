"""The estimator of PyTorch, and how its processes exchange data."""

from dataclasses import dataclass

from partwise.compat.azureml.core.runconfig import MpiConfiguration
from partwise.compat.azureml.train.estimator import Estimator


class Mpi(MpiConfiguration):
    """Processes of one job of Open MPI; `node_count` is the estimator's."""

    __slots__ = ()


class Gloo:
    """Processes that exchange data by gloo."""


class Nccl:
    """Processes that exchange data by nccl."""


@dataclass(slots=True)
class PyTorch(Estimator):
    """An estimator whose `framework_version` is torch's."""
