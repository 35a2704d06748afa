"""The types of flow parameters: what a caller may pass, and what Prefect's forms show for it.

A form is made of a parameter's JSON schema: `SkipJsonSchema` hides what only Python can pass (a
path, a function, None), so that the form has no tab for it. Where nothing need be given the default
is empty, never None: a form sends its defaults, and for none of its fields could that be null.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from partwise.blocks import (
    ArtifactStore,
    CudaCluster,
    CustomCluster,
    LocalCluster,
    RemoteCluster,
    SqlTable,
)
from partwise.engine.options import ExecutionOptions
from partwise.engine.scaling import ScalingConfig
from partwise.exports.protocol import Exporter
from partwise.gangs.options import GangOptions
from partwise.models.export_options import ExportOptions, ValidationOptions
from partwise.models.serdes import ModelSerde
from partwise.publishing.dataset_output import DatasetOutput
from partwise.publishing.sql_output import Table
from partwise.sources.files.discovery import Format
from partwise.sources.files.reading_options import CsvOptions, ExcelOptions
from partwise.tables.filters import Filter
from partwise.tables.schemas import SchemaPolicy
from partwise.trainers import Best, Tuned
from partwise.trainers.distributed_lightgbm import DistributedLightGBM
from partwise.trainers.distributed_xgboost import DistributedXGBoost
from partwise.trainers.ready import ReadyTrainer

_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}

Nothing = SkipJsonSchema[None]
Function = SkipJsonSchema[Callable[..., Any]]

_FILES = {
    "title": "Files",
    "type": "object",
    "properties": {
        "paths": _TEXTS,
        "format": _TEXT | {"enum": ["", *get_args(Format)], "default": ""},
        "schema": _TEXT | {"enum": list(get_args(SchemaPolicy)), "default": "cast"},
        "types": {"type": "object", "default": {}},
        "file_column": _TEXT | {"default": ""},
        # A text: the ID of a snapshot has more digits than a number of JavaScript.
        "version": _TEXT | {"default": ""},
        "csv": CsvOptions.model_json_schema(),
        "excel": ExcelOptions.model_json_schema(),
    },
    "required": ["paths"],
}
DataParameter = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                _TEXT | {"title": "Path"},
                _TEXTS | {"title": "Paths"},
                _FILES,
            ]
        }
    ),
]
PartitionBy = Annotated[
    str | Sequence[str],
    WithJsonSchema({"anyOf": [_TEXT | {"title": "Column"}, _TEXTS | {"title": "Columns"}]}),
]
TrainerParameter = (
    ReadyTrainer
    | Best
    | Tuned
    | Annotated[str, WithJsonSchema(_TEXT | {"title": "Function"})]
    | Function
)
SearchedTrainerParameter = (
    ReadyTrainer | Annotated[str, WithJsonSchema(_TEXT | {"title": "Function"})] | Function
)
StudyTrainerParameter = (
    ReadyTrainer
    | DistributedXGBoost
    | DistributedLightGBM
    | Annotated[str, WithJsonSchema(_TEXT | {"title": "Function"})]
    | Function
)
SpaceParameter = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "object", "title": "By name"},
                _TEXT | {"title": "Function"},
            ]
        }
    ),
]
MetricParameter = Annotated[str, WithJsonSchema(_TEXT | {"title": "Name"})] | Function
DistributedTrainerParameter = (
    DistributedXGBoost
    | DistributedLightGBM
    | Annotated[str, WithJsonSchema(_TEXT | {"title": "Function"})]
    | Function
)
EvalDataParameter = Annotated[Any, WithJsonSchema({"type": "object"})]
HyperparametersParameter = Annotated[Mapping[str, Any], WithJsonSchema({"type": "object"})]
TextsParameter = Annotated[Sequence[str], WithJsonSchema(_TEXTS)]
TextsByNameParameter = Annotated[Mapping[str, str], WithJsonSchema({"type": "object"})]
ParamsByNameParameter = Annotated[Mapping[str, Any], WithJsonSchema({"type": "object"})]
InputsByNameParameter = Annotated[Any, WithJsonSchema({"type": "object"})]
CommandParameter = Annotated[
    str | Sequence[str],
    WithJsonSchema({"anyOf": [_TEXT | {"title": "Command line"}, _TEXTS | {"title": "Words"}]}),
]
FunctionParameter = str | Function
PredictParameter = str | Function | Nothing
InputsParameter = str | Function | Nothing
InputFilesParameter = Annotated[Sequence[str | Path] | None, WithJsonSchema(_TEXTS)]
ExporterParameter = Annotated[Exporter | str, WithJsonSchema(_TEXT)]
StoreParameter = (
    ArtifactStore
    | Annotated[str, WithJsonSchema(_TEXT | {"title": "Folder or URL"})]
    | SkipJsonSchema[Path]
)
OutputParameter = (
    SqlTable
    | Annotated[str, WithJsonSchema(_TEXT | {"title": "Name of a table's block, or dataset"})]
    | SkipJsonSchema[Table]
    | SkipJsonSchema[DatasetOutput]
    | Nothing
)
Cluster = LocalCluster | CudaCluster | RemoteCluster | CustomCluster
ClusterParameter = (
    Cluster | Annotated[str, WithJsonSchema(_TEXT | {"title": "Name or address"})] | Nothing
)
SerdeParameter = Annotated[ModelSerde | str | None, WithJsonSchema(_TEXT)]
ParamsParameter = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                _TEXT | {"title": "Path of a table"},
                {"type": "object", "title": "By key"},
            ]
        }
    ),
]
FilterParameter = Annotated[
    Filter | None, WithJsonSchema({"type": "array", "items": {"type": "array"}})
]
ColumnsParameter = Annotated[Sequence[str] | None, WithJsonSchema(_TEXTS)]
VersionParameter = str | Nothing

NONE_GIVEN: Mapping[str, Any] = {}
DEFAULT_EXECUTION = ExecutionOptions()
DEFAULT_SCALING = ScalingConfig()
DEFAULT_GANG = GangOptions()
DEFAULT_EXPORT = ExportOptions()
DEFAULT_VALIDATION = ValidationOptions()
