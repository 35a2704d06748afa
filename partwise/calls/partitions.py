"""Calls whose work is done for each partition: training, inference, functions, portfolios."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from partwise.calls.call import FILES, FUNCTION, HOW, CallKind, KeyedCall, Role, drawn_rows
from partwise.choices import Direction, OnMissingModel
from partwise.environments.environment import DEFAULT_ENVIRONMENT, Environment
from partwise.models.export_options import ModelFormat
from partwise.tuning.sampler import SamplerName

if TYPE_CHECKING:
    from partwise.calls.parameters import (
        ColumnsParameter,
        FallbackParameter,
        FilesParameter,
        FunctionParameter,
        HoldoutParameter,
        MetricParameter,
        OnlyParameter,
        OutputParameter,
        PartitionBy,
        PredictParameter,
        SearchedSpaceParameter,
        SearchedTrainerParameter,
        SerdeParameter,
        TextsParameter,
        TrainerParameter,
    )

NEWER = Role(decides=False, is_newer=True).metadata
Count = Annotated[int, Field(ge=1)]
Several = Annotated[int, Field(ge=2)]


@dataclass(frozen=True, kw_only=True)
class FunctionCall(KeyedCall):
    """A call that may run a function of the user's, with files and packages of its own."""

    files: FilesParameter = field(default=(), metadata=FILES)
    """Files that the function reads besides its rows: paths, folders, globs or URLs. A resume runs
    all again when the checksum of one has changed; of files that are not named here it knows
    nothing."""
    environment: Environment = field(default=DEFAULT_ENVIRONMENT, metadata=NEWER)
    """Packages of the function's own, before those of the workers: resolved with uv on this
    machine, built once on each worker's. A resume goes on with the versions that the run has, and
    runs all again when a package has changed. Empty: there are none."""


@dataclass(frozen=True)
class TrainCall(FunctionCall):
    """A call of `train_models`."""

    kind: ClassVar[CallKind] = "train"

    trainer: TrainerParameter = field(metadata=FUNCTION)
    """A trainer with its settings, or "package.module:function": a function of (data:
    DataConnector, context: PartitionContext) returning a model, Result or Skip. From Python also
    the function itself."""
    _: KW_ONLY
    serde: SerdeParameter = ""
    """How models become files: the name of a built-in serde such as "pickle". Empty: the native
    format of each model's library. From Python also a serde."""
    sketches: Literal["keep", "none"] = field(default="keep", metadata=NEWER)
    """A sketch of the rows beside each model, of some 50 bytes a column, with which later rows are
    compared: "keep", or "none"."""
    only: OnlyParameter = field(
        default="", metadata=Role(decides=False, is_data=True, is_newer=True).metadata
    )
    """The only keys that are trained; rows of others are not even sorted. A list of keys; a table
    with the key columns, by its path, URL or dataset; or the ID of a run of evaluate_predictions,
    for what got worse. Empty: all. A resume means the same keys, whatever became of the table.

    From Python also the table, and tuples for several key columns."""


@dataclass(frozen=True, kw_only=True)
class PublishingCall(FunctionCall):
    """A call whose rows may go to a table or a dataset."""

    output: OutputParameter = field(default="", metadata=Role(decides=False, is_data=True).metadata)
    """Where the rows go as well when the run is complete, each partition exactly once. A table to
    which they are appended with their run_id and partition_id, made where there is none: the name
    of a TableBlock that is saved, such as table-block/prod. Or a dataset of the store, of which
    they become a version: dataset://forecasts.

    Or a TableBlock."""


@dataclass(frozen=True)
class InferCall(PublishingCall):
    """A call of `run_inference`."""

    kind: ClassVar[CallKind] = "infer"

    partition_by: PartitionBy = ()
    """The key column, or a list of them. Rows of equal keys are a partition. Of a run of
    train_distributed all have the one model, and none need be named: then blocks of rows are
    partitions, and the column "block" tells them apart."""
    training_run_id: str = ""
    """The run of train_models or train_distributed, in the same store, whose models are used; with
    a format, the run of export_models, or the training run where it was exported once in that
    format.

    The scheduled time can stand in it as in run_id."""
    predict: PredictParameter = field(default="", metadata=FUNCTION)
    """"package.module:function": a function of (data: DataConnector, model, context:
    PartitionContext) that returns rows: an array, a frame, a mapping of columns, a Result of one of
    these, or a Skip. Empty: the model's own prediction, as "prediction". From Python also the
    function itself."""
    _: KW_ONLY
    format: ModelFormat = "native"
    """"native": the models of the run that is named, as they are. "onnx": exports of them, by
    onnxruntime in place of the training library; "torchscript" and "pt2" likewise, by PyTorch."""
    models: str = field(default="", metadata=NEWER)
    """In place of training_run_id, a catalog whose models are used: catalog://sales, or
    catalog://sales@7 for one version. A resume goes on with the version that the run began with.

    The scheduled time can stand in run://RUN, here and in fallback, as in run_id; "latest" and
    patterns as in training_run_id."""
    fallback: FallbackParameter = field(default=(), metadata=NEWER)
    """What is asked in turn for partitions whose model is not there, or cannot be read: run://RUN
    or catalog://NAME, by the same key columns, by fewer of them, or of one model for all rows; at
    the end a number, which is predicted. With a catalog or a fallback, predictions have the columns
    model_run, model_key and model_level. From Python also Constant("text") or a trainer at the end,
    which is fitted on those of the rows that have a label."""
    on_error: Literal["fail", "next"] = field(default="fail", metadata=NEWER)
    """What becomes of a partition whose model raises an error: "fail", or "next" to ask what is
    next in fallback."""
    serde: SerdeParameter = ""
    """Reads models that no native serde wrote: the name of a built-in one. "pickle", "pt2",
    "torchscript" and "neuron" run code, so they are read only if they are named here or as
    `format`. From Python also a serde."""
    keep_columns: ColumnsParameter = ()
    """Columns of the rows to keep beside the predictions, such as a date."""
    on_missing_model: OnMissingModel = field(default="fail", metadata=HOW)
    """What becomes of a partition without a model: "fail", "skip", or "previous": it is inferred by
    the model that its key had in the newest complete run before whose ID differs in its numbers
    alone, as that of the night before does. Predictions then say in model_run which run that was.
    A key that no run knows fails, or with "previous-or-skip" is skipped."""


@dataclass(frozen=True)
class CompareCall(FunctionCall):
    """A call of `compare_models`."""

    kind: ClassVar[CallKind] = "compare"

    candidates: TextsParameter = field(metadata=HOW)
    """Whose models are compared, two or more: catalogs, such as catalog://sales or
    catalog://sales@7, and runs of training or of export_models by their IDs. The one in use comes
    first: of equals it wins. catalog://sales#onnx are the exports of a catalog's models.

    The scheduled time can stand in a run's ID as in run_id; "latest" and patterns as in
    run_inference."""
    label: str = ""
    """The column that is predicted. Empty: the one that a dataset marks as its label."""
    _: KW_ONLY
    metric: MetricParameter = field(default="rmse", metadata=Role(function="maybe").metadata)
    """What tells better models: rmse, mae, mape, wape, smape, pinball, logloss, accuracy or auc.
    From Python also a function of (labels, predictions)."""
    direction: Direction = ""
    """Which values are better, of a metric that is a function; empty: lower ones."""
    predict: PredictParameter = field(default="", metadata=FUNCTION)
    """"package.module:function": a function of (data, model, context) by which models predict.
    Empty: as inference does. From Python also the function itself."""
    serde: SerdeParameter = ""
    """Reads models that no native serde wrote: the name of a built-in one. "pickle", "pt2",
    "torchscript" and "neuron" run code, so they are read only if named. From Python also a
    serde."""
    allow_training_rows: bool = False
    """Whether a candidate may win on the very rows that it was trained on."""


@dataclass(frozen=True)
class EvaluateCall(FunctionCall):
    """A call of `evaluate_predictions`."""

    kind: ClassVar[CallKind] = "evaluate"

    partition_by: PartitionBy = ()
    """The key columns, if they are to be checked. Empty: those of the predictions."""
    inference_run_id: str = ""
    """The inference run whose predictions are compared with what has become true; or a catalog, as
    catalog://sales, for the newest that has ended; or "latest", or a pattern such as nightly-*, for
    the newest of those; or what a server has kept, as served://sales, or served://sales@7 for the
    answers of one version.

    The scheduled time can stand in it as in run_id."""
    on: PartitionBy = ()
    """The columns that, beside the key, tell which row is which, such as a date: the predictions
    have them by keep_columns, and the rows here. Empty: each key has one row."""
    label: str = ""
    """The column with what has become true. Empty: the one that a dataset marks as its label."""
    _: KW_ONLY
    prediction: str = "prediction"
    """The column that was predicted: of several classes it is one for each, prediction_0 and so
    on."""
    latest_by: str = ""
    """A column, such as the time of an entry, by which the last of several labels of a row is the
    one that counts. Empty: a partition with two labels of one row is FAILED."""
    metric: MetricParameter = field(default="rmse", metadata=Role(function="maybe").metadata)
    """What tells how good predictions are: rmse, mae, mape, wape, smape, pinball, logloss, accuracy
    or auc. From Python also a function of (labels, predictions)."""
    direction: Direction = ""
    """Which values are better, of a metric that is a function; empty: lower ones."""
    drift: Literal["measure", "none"] = "measure"
    """Whether the rows with labels are compared with those of the training, feature by feature:
    "measure", where both have the columns and the training kept sketches, or "none"."""
    worse_by: Annotated[float, Field(ge=0)] = field(default=0.2, metadata=HOW)
    """A key got worse where its loss is above that of its model at promotion, or in training, by
    more than this share of it, and that beyond luck."""
    confidence: Annotated[float, Field(ge=0.5, lt=1)] = field(default=0.99, metadata=HOW)
    """How sure it has to be that a key got worse, of metrics that are a mean over rows."""
    min_rows: Count = field(default=30, metadata=HOW)
    """Keys with fewer rows that have a label are listed apart, and never called worse."""


@dataclass(frozen=True)
class MapCall(PublishingCall):
    """A call of `map_partitions`."""

    kind: ClassVar[CallKind] = "map"

    function: FunctionParameter = field(metadata=FUNCTION)
    """"package.module:function": a function of (data: DataConnector, context: PartitionContext)
    that returns None, rows, a Result of rows, or a Skip. From Python also the function itself."""


@dataclass(frozen=True)
class PortfolioCall(KeyedCall):
    """A call of `find_portfolio`."""

    kind: ClassVar[CallKind] = "find-portfolio"

    trainer: SearchedTrainerParameter = field(metadata=FUNCTION)
    """Whose settings are tried, as Tuned takes it."""
    space: SearchedSpaceParameter = field(metadata=Role(function="maybe").metadata)
    """What they are drawn from: parameters by name, each uniform, loguniform, randint, choice, grid
    or a constant; or a function of an Optuna trial, or its name."""
    _: KW_ONLY
    sample: Count = 200
    """On how many partitions, chosen by the hashes of their keys among those that have the
    trainer's fewest rows."""
    trials: Several = 100
    """How many settings, the trainer's own included."""
    size: Count = field(default=8, metadata=HOW)
    """How many are picked, the trainer's own included: fewer, if no others bring anything."""
    metric: MetricParameter = field(default="", metadata=Role(function="maybe").metadata)
    """What tells better settings: a name. Empty: rmse, or logloss for classes. From Python also a
    function of (labels, predictions)."""
    direction: Direction = ""
    """Which values are better, of a metric that is a function; empty: lower ones."""
    holdout: HoldoutParameter = field(default_factory=drawn_rows)
    """The rows that settings are scored on."""
    sampler: SamplerName = "random"
    """How settings are drawn: "random", or "grid" for all there are."""
    label: str = field(default="", metadata=Role(is_newer=True).metadata)
    """Of a train function: the column that is predicted. Empty: the one that a dataset marks as its
    label."""
    predict: FunctionParameter = field(
        default="", metadata=Role(function="always", is_newer=True).metadata
    )
    """Of a train function: the name of a function of (data, model, context) by which its models
    predict. Empty: as inference does. From Python also the function itself."""
    seed: int = 0
    """The settings, and every partition's own seed, are derived from it."""
