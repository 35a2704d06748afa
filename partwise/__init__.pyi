from partwise.blocks import (
    ArtifactStore,
    CudaCluster,
    FileSource,
    LocalCluster,
    RemoteCluster,
    SqlSource,
    SqlTable,
)
from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.connector.rank_context import RankContext, get_context
from partwise.datasets.dataset import Dataset, list_datasets
from partwise.datasets.registration import register_dataset
from partwise.engine.options import ExecutionOptions
from partwise.engine.scaling import ScalingConfig
from partwise.environments.environment import Environment
from partwise.errors import (
    ArtifactNotFoundError,
    CheckpointError,
    ClusterError,
    ColumnError,
    DatasetNotFoundError,
    EnvironmentBuildError,
    ExportMismatch,
    ExportRefused,
    FunctionError,
    InputError,
    IntegrityError,
    KeyClassError,
    ModelNotFound,
    MpiError,
    NewerFormatError,
    NullKeyError,
    OpsetError,
    OutputError,
    PackageError,
    PartitionNotFoundError,
    PartwiseError,
    PeerLostError,
    RunBusyError,
    RunCancelled,
    RunExistsError,
    RunFailed,
    RunFormatError,
    RunIdError,
    RunNotFoundError,
    SerdeError,
    ServiceError,
    SourceError,
    StoreError,
    TrialsFailed,
    UnknownFeatureError,
    UnknownModelTypeError,
)
from partwise.evaluation import (
    Backtest,
    CrossValidation,
    Evaluation,
    HoldoutByTime,
    HoldoutFraction,
)
from partwise.exports.protocol import Exporter, ModelDescription
from partwise.flows import (
    export_models,
    export_transformers,
    find_portfolio,
    map_partitions,
    model_pipeline,
    run_inference,
    run_script,
    scale_cluster,
    train_distributed,
    train_models,
    validate_exports,
)
from partwise.gangs.options import GangOptions
from partwise.models.export_options import ExportOptions, ValidationOptions
from partwise.models.onnx_model import OnnxModel
from partwise.models.serdes import (
    KerasSerde,
    LightGBMSerde,
    ModelSerde,
    NeuronSerde,
    OnnxSerde,
    PickleSerde,
    Pt2Serde,
    TorchScriptSerde,
    TorchSerde,
    XGBoostSerde,
)
from partwise.outcomes import PartitionStatus, Result, RunStatus, Skip
from partwise.publishing.dataset_output import DatasetOutput
from partwise.publishing.sql_output import Table
from partwise.reports.report import write_report
from partwise.runs.contents import list_runs
from partwise.runs.layout import lay_out
from partwise.runs.pipeline import Pipeline
from partwise.runs.run import Run
from partwise.scripts.infrastructure import Infrastructure
from partwise.sources.files.file_set import Files
from partwise.sources.sql.query import Query
from partwise.store.store import Store
from partwise.trainers import LightGBMTrainer, Trainer, XGBoostTrainer, default_predict
from partwise.trainers.distributed_lightgbm import DistributedLightGBM
from partwise.trainers.distributed_xgboost import DistributedXGBoost
from partwise.trainers.torch_distributor import TorchDistributor
from partwise.trainers.tuned import Tuned
from partwise.transformers.collection import TransformersExport
from partwise.transformers.options import TransformersOptions
from partwise.tuning.budget import Budget
from partwise.tuning.space import choice, grid, loguniform, randint, uniform

__all__ = [
    "export_models",
    "export_transformers",
    "find_portfolio",
    "map_partitions",
    "model_pipeline",
    "run_inference",
    "run_script",
    "scale_cluster",
    "train_distributed",
    "train_models",
    "validate_exports",
    "PartitionStatus",
    "Result",
    "RunStatus",
    "Skip",
    "PartitionContext",
    "DataConnector",
    "RankContext",
    "get_context",
    "LightGBMTrainer",
    "Trainer",
    "XGBoostTrainer",
    "default_predict",
    "Tuned",
    "choice",
    "grid",
    "loguniform",
    "randint",
    "uniform",
    "Budget",
    "Backtest",
    "CrossValidation",
    "Evaluation",
    "HoldoutByTime",
    "HoldoutFraction",
    "DistributedLightGBM",
    "DistributedXGBoost",
    "TorchDistributor",
    "KerasSerde",
    "LightGBMSerde",
    "ModelSerde",
    "NeuronSerde",
    "OnnxSerde",
    "PickleSerde",
    "Pt2Serde",
    "TorchScriptSerde",
    "TorchSerde",
    "XGBoostSerde",
    "OnnxModel",
    "ExportOptions",
    "ValidationOptions",
    "Exporter",
    "ModelDescription",
    "TransformersOptions",
    "TransformersExport",
    "Environment",
    "ExecutionOptions",
    "ScalingConfig",
    "GangOptions",
    "Infrastructure",
    "ArtifactStore",
    "CudaCluster",
    "FileSource",
    "LocalCluster",
    "RemoteCluster",
    "SqlSource",
    "SqlTable",
    "Files",
    "Query",
    "Table",
    "DatasetOutput",
    "Dataset",
    "list_datasets",
    "register_dataset",
    "Store",
    "Run",
    "Pipeline",
    "list_runs",
    "lay_out",
    "write_report",
    "PartwiseError",
    "InputError",
    "SourceError",
    "ColumnError",
    "NullKeyError",
    "KeyClassError",
    "RunIdError",
    "FunctionError",
    "SerdeError",
    "UnknownFeatureError",
    "UnknownModelTypeError",
    "OpsetError",
    "CheckpointError",
    "StoreError",
    "RunExistsError",
    "RunNotFoundError",
    "DatasetNotFoundError",
    "RunBusyError",
    "RunFormatError",
    "NewerFormatError",
    "PartitionNotFoundError",
    "ArtifactNotFoundError",
    "ModelNotFound",
    "TrialsFailed",
    "ExportRefused",
    "ExportMismatch",
    "IntegrityError",
    "ClusterError",
    "OutputError",
    "ServiceError",
    "PeerLostError",
    "MpiError",
    "RunFailed",
    "RunCancelled",
    "PackageError",
    "EnvironmentBuildError",
]
