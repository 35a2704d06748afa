"""The types of parameters that may be blocks: what stands in place of the words in a call."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from partwise.blocks import (
    CudaCluster,
    CustomCluster,
    LocalCluster,
    RemoteCluster,
    StoreBlock,
    TableBlock,
)
from partwise.calls import parameters
from partwise.calls.parameters import TEXT
from partwise.form_schema import Nothing
from partwise.publishing.dataset_output import DatasetOutput
from partwise.publishing.sql_output import Table

StoreParameter = (
    StoreBlock
    | Annotated[str, WithJsonSchema(TEXT | {"title": "Folder or URL"})]
    | SkipJsonSchema[Path]
)
OutputParameter = (
    TableBlock
    | Annotated[str, WithJsonSchema(TEXT | {"title": "Name of a table's block, or dataset"})]
    | SkipJsonSchema[Table]
    | SkipJsonSchema[DatasetOutput]
    | Nothing
)
Cluster = LocalCluster | CudaCluster | RemoteCluster | CustomCluster
ClusterParameter = (
    Cluster | Annotated[str, WithJsonSchema(TEXT | {"title": "Name or address"})] | Nothing
)

_BLOCKS = (
    (parameters.StoreParameter, StoreParameter),
    (parameters.OutputParameter, OutputParameter),
    (parameters.ClusterParameter, ClusterParameter),
)


def with_blocks(annotation: Any) -> Any:
    """Return the type of a parameter, with blocks where a call has words for them."""
    return next((blocks for words, blocks in _BLOCKS if words == annotation), annotation)
