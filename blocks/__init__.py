"""What exists outside partwise and how to reach it: saved, typed Prefect blocks."""

from partwise.blocks.clusters import CudaCluster, LocalCluster, RemoteCluster
from partwise.blocks.custom_cluster import CustomCluster
from partwise.blocks.sources import FilesBlock, QueryBlock, TableBlock
from partwise.blocks.store import StoreBlock

__all__ = [
    "StoreBlock",
    "FilesBlock",
    "LocalCluster",
    "CudaCluster",
    "RemoteCluster",
    "CustomCluster",
    "QueryBlock",
    "TableBlock",
]
