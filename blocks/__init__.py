"""What exists outside partwise and how to reach it: saved, typed Prefect blocks."""

from partwise.blocks.artifact_store import ArtifactStore
from partwise.blocks.clusters import CudaCluster, LocalCluster, RemoteCluster
from partwise.blocks.custom_cluster import CustomCluster
from partwise.blocks.sources import FileSource, SqlSource, SqlTable

__all__ = [
    "ArtifactStore",
    "FileSource",
    "LocalCluster",
    "CudaCluster",
    "RemoteCluster",
    "CustomCluster",
    "SqlSource",
    "SqlTable",
]
