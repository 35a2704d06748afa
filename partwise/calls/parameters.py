"""The types of what a call takes: what a caller may pass, and what Prefect's forms show for it.

Where a block of Prefect's may stand, which nothing here knows, the type says so in words, and
`partwise.flows.orchestration.block_parameters` has what stands there.

A form is made of a parameter's JSON schema: `SkipJsonSchema` hides what only Python can pass (a
path, a function, None), so that the form has no tab for it. Where nothing need be given the default
is empty, never None: a form sends its defaults, and for none of its fields could that be null.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Annotated, Any, get_args

from pydantic import BeforeValidator, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from partwise.choices import Format, SchemaPolicy, ScriptBackend
from partwise.engine.fallbacks import Constant
from partwise.evaluation import Evaluation
from partwise.exports.protocol import Exporter
from partwise.form_schema import Nothing
from partwise.models.serdes import ModelSerde
from partwise.sources.files.reading_options import CsvOptions, ExcelOptions
from partwise.tables.filters import Filter
from partwise.trainers import Best, Tuned
from partwise.trainers.ranks.lightgbm import DistributedLightGBM
from partwise.trainers.ranks.xgboost import DistributedXGBoost
from partwise.trainers.ready.every import ReadyTrainer
from partwise.transformers.collection import TransformersExport

TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT}

Function = SkipJsonSchema[Callable[..., Any]]
NamedFunction = Annotated[str, WithJsonSchema(TEXT | {"title": "Function"})] | Function


def _one_of(*schemas: dict[str, Any]) -> WithJsonSchema:
    """Return what a form shows for a value of several shapes: a tab for each."""
    return WithJsonSchema({"anyOf": [*schemas]})


_FILES = {
    "title": "Files",
    "type": "object",
    "properties": {
        "paths": TEXTS,
        "format": TEXT | {"enum": ["", *get_args(Format)], "default": ""},
        "schema": TEXT | {"enum": list(get_args(SchemaPolicy)), "default": "cast"},
        "types": {"type": "object", "default": {}},
        "file_column": TEXT | {"default": ""},
        # A text: the ID of a snapshot has more digits than a number of JavaScript.
        "version": TEXT | {"default": ""},
        "csv": CsvOptions.model_json_schema(),
        "excel": ExcelOptions.model_json_schema(),
    },
    "required": ["paths"],
}
DataParameter = Annotated[
    Any, _one_of(TEXT | {"title": "Path"}, TEXTS | {"title": "Paths"}, _FILES)
]
PartitionBy = Annotated[
    str | Sequence[str], _one_of(TEXT | {"title": "Column"}, TEXTS | {"title": "Columns"})
]
TrainerParameter = ReadyTrainer | Best | Tuned | NamedFunction
SearchedTrainerParameter = ReadyTrainer | NamedFunction
StudyTrainerParameter = ReadyTrainer | DistributedXGBoost | DistributedLightGBM | NamedFunction
SpaceParameter = Annotated[
    Any, _one_of({"type": "object", "title": "By name"}, TEXT | {"title": "Function"})
]
SearchedSpaceParameter = Annotated[Any, WithJsonSchema({"type": "object"})]
MetricParameter = Annotated[str, WithJsonSchema(TEXT | {"title": "Name"})] | Function
DistributedTrainerParameter = DistributedXGBoost | DistributedLightGBM | NamedFunction
EvalDataParameter = Annotated[Any, WithJsonSchema({"type": "object"})]
OneParamsParameter = Annotated[Mapping[str, Any], WithJsonSchema({"type": "object"})]
PathParameter = Annotated[
    str, BeforeValidator(lambda value: str(value) if isinstance(value, PurePath) else value)
]
TextsParameter = Annotated[Sequence[str], WithJsonSchema(TEXTS)]
TextsByNameParameter = Annotated[Mapping[str, str], WithJsonSchema({"type": "object"})]
ArgumentsParameter = Annotated[
    Mapping[str, Any] | Sequence[str],
    _one_of(TEXTS | {"title": "Words"}, {"type": "object", "title": "By name"}),
]
_BACKENDS = {name.capitalize(): name for name in get_args(ScriptBackend)}
"""As AzureML writes them: "Nccl"."""
BackendParameter = Annotated[
    ScriptBackend, BeforeValidator(lambda value: _BACKENDS.get(str(value).capitalize(), value))
]
InputsByNameParameter = Annotated[Any, WithJsonSchema({"type": "object"})]
CommandParameter = Annotated[
    str | Sequence[str], _one_of(TEXT | {"title": "Command line"}, TEXTS | {"title": "Words"})
]
FallbackParameter = Annotated[
    Sequence[Constant | ReadyTrainer | bool | int | float | str], WithJsonSchema(TEXTS)
]
FunctionParameter = str | Function
PredictParameter = str | Function | Nothing
ExampleInputsParameter = str | Function | Nothing
FilesParameter = Annotated[Sequence[str | Path] | None, WithJsonSchema(TEXTS)]
ExporterParameter = Annotated[Exporter | str, WithJsonSchema(TEXT)]
StoreParameter = Annotated[Any, "a store"]
OutputParameter = Annotated[Any, "an output"]
ClusterParameter = Annotated[Any, "a cluster"]
SerdeParameter = Annotated[ModelSerde | str | None, WithJsonSchema(TEXT)]
ParamsParameter = Annotated[
    Any, _one_of(TEXT | {"title": "Path of a table"}, {"type": "object", "title": "By key"})
]
OnlyParameter = Annotated[
    Any, _one_of(TEXT | {"title": "Table or run"}, {"type": "array", "title": "Keys"})
]
FilterParameter = Annotated[
    Filter | None, WithJsonSchema({"type": "array", "items": {"type": "array"}})
]
ColumnsParameter = Annotated[Sequence[str] | None, WithJsonSchema(TEXTS)]
VersionParameter = str | Nothing
HoldoutParameter = Evaluation
TransformersParameter = (
    TransformersExport | SkipJsonSchema[tuple[Any, ...]] | SkipJsonSchema[dict[str, Any]]
)
