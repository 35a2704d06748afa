"""Train, run, export and prove one model per partition, thousands at a time.

Everything that a user of partwise needs is imported from here. A name is loaded when it is first
asked for, so that `import partwise` takes milliseconds. `__init__.pyi` has the same names for mypy
and for editors. Three parts have names of their own: `partwise.client`, which asks a server of
models; `partwise.transformers`, with the table of architectures; and `partwise.testing`, with the
contracts for your own serde, exporter or source.

Example:
    >>> from partwise import Skip
    >>> Skip("too few rows").reason
    'too few rows'
"""

import importlib
from typing import Any

from partwise.processes.garbage import collecting_rarely
from partwise.renamed import is_called_now
from partwise.stand_ins import load

_MODULES = {
    "partwise.flows": (
        *("compare_models", "evaluate_predictions", "export_models", "export_transformers"),
        *("find_portfolio", "lifecycle", "map_partitions", "model_pipeline", "promote_models"),
        *("run_inference", "run_script", "scale_cluster", "tidy_store", "train_distributed"),
        *("train_models", "tune_model", "validate_exports"),
    ),
    "partwise.outcomes": ("PartitionStatus", "Result", "RunStatus", "Skip"),
    "partwise.connector.context": ("PartitionContext",),
    "partwise.connector.data_connector": ("DataConnector",),
    "partwise.ranks.context": ("RankContext",),
    "partwise.ranks.current_context": ("get_context",),
    "partwise.trainers": (
        *("Best", "Lagged", "LastValue", "LightGBMTrainer", "Linear", "Mean", "RandomForest"),
        *("SeasonalNaive", "StatsForecast", "Trainer", "XGBoostTrainer", "default_predict"),
    ),
    "partwise.trainers.choosing.tuned": ("Tuned",),
    "partwise.tuning.space": ("choice", "grid", "loguniform", "randint", "uniform"),
    "partwise.tuning.budget": ("Budget",),
    "partwise.evaluation": (
        *("Backtest", "CrossValidation", "Evaluation", "HoldoutByTime", "HoldoutFraction"),
    ),
    "partwise.trainers.ranks.lightgbm": ("DistributedLightGBM",),
    "partwise.trainers.ranks.xgboost": ("DistributedXGBoost",),
    "partwise.trainers.ranks.torch": ("TorchDistributor",),
    "partwise.models.serdes": (
        *("KerasSerde", "LightGBMSerde", "ModelSerde", "NeuronSerde", "OnnxSerde"),
        *("PickleSerde", "PlainSerde", "Pt2Serde", "TorchScriptSerde", "TorchSerde"),
        "XGBoostSerde",
    ),
    "partwise.models.onnx_model": ("OnnxModel",),
    "partwise.models.export_options": ("ExportOptions", "ValidationOptions"),
    "partwise.exports.protocol": ("Exporter", "ModelDescription"),
    "partwise.transformers.options": ("TransformersOptions",),
    "partwise.transformers.collection": ("TransformersExport",),
    "partwise.environments.environment": ("Environment",),
    "partwise.engine.fallbacks": ("Constant",),
    "partwise.engine.options": ("ExecutionOptions",),
    "partwise.engine.scaling": ("ScalingConfig",),
    "partwise.gangs.options": ("GangOptions",),
    "partwise.scripts.infrastructure": ("Infrastructure",),
    "partwise.blocks": (
        *("StoreBlock", "CudaCluster", "CustomCluster", "FilesBlock", "LocalCluster"),
        *("RemoteCluster", "QueryBlock", "TableBlock"),
    ),
    "partwise.catalogs.contest": ("Contest",),
    "partwise.catalogs.evaluated": ("Evaluated",),
    "partwise.catalogs.rules": ("Everything", "Improvement", "NewKeys", "Retire", "TheseKeys"),
    "partwise.sources.files.file_set": ("Files",),
    "partwise.sources.files.reading_options": ("CsvOptions", "ExcelOptions"),
    "partwise.sources.sql.query": ("Query",),
    "partwise.publishing.sql_output": ("Table",),
    "partwise.publishing.dataset_output": ("DatasetOutput",),
    "partwise.catalogs.catalog": ("Catalog",),
    "partwise.serving.predictor": ("Predictor",),
    "partwise.serving.served": ("PredictorOptions",),
    "partwise.datasets.dataset": ("Dataset", "list_datasets"),
    "partwise.datasets.registration": ("register_dataset",),
    "partwise.store.store": ("Store",),
    "partwise.runs.run": ("Run",),
    "partwise.runs.pipeline": ("Pipeline",),
    "partwise.runs.progress": ("RunProgress",),
    "partwise.flows.orchestration.started_run": ("StartedRun",),
    "partwise.runs.contents": ("list_runs",),
    "partwise.runs.layout": ("lay_out",),
    "partwise.reports.report": ("write_report",),
    "partwise.errors": (
        *("PartwiseError", "InputError", "ArgumentError", "SourceError", "ColumnError"),
        *("NullKeyError", "KeyClassError", "RunIdError", "FunctionError", "TrustError"),
        *("SerdeError", "UnkeptModelError", "UnknownFeatureError"),
        *("UnknownModelTypeError", "OpsetError", "CheckpointError", "StoreError", "ScratchError"),
        *("RunExistsError", "RunNotFoundError", "DatasetNotFoundError", "RunBusyError"),
        *("CatalogNotFoundError", "CatalogConflictError"),
        *("RunFormatError", "NewerFormatError", "PartitionNotFoundError"),
        *("ArtifactNotFoundError", "ModelNotFoundError", "TrialsFailedError"),
        *("ExportRefusedError", "ExportMismatchError", "IntegrityError", "ClusterError"),
        *("GateError", "NoRowsError", "OutputError", "ServiceError", "SignatureError"),
        *("PeerLostError", "MpiError", "RunFailedError", "RunCancelledError"),
        *("PackageError", "EnvironmentBuildError", "TrialPruned"),
    ),
}
_KNOW_PREFECT = ("partwise.flows", "partwise.blocks")
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        if sentence := is_called_now(__name__, name):
            # Of an AttributeError `from partwise import ...` would not show the words.
            raise ImportError(f"{sentence}.", name=__name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULE_OF[name]
    value: Any
    with collecting_rarely():
        if module in _KNOW_PREFECT:
            value = load(module, name)
        else:
            value = getattr(importlib.import_module(module), name)
    # The next time Python finds it without this function.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
