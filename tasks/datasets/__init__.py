"""Datasets: rows by name and version in the artifact store, which do not change any more."""

from partwise.tasks.datasets.dataset import Dataset, list_datasets
from partwise.tasks.datasets.registration import register_dataset

__all__ = ["Dataset", "list_datasets", "register_dataset"]
