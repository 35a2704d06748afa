from partwise.blocks import (
    ArtifactStore as ArtifactStore,
)
from partwise.blocks import (
    CudaCluster as CudaCluster,
)
from partwise.blocks import (
    FileSource as FileSource,
)
from partwise.blocks import (
    LocalCluster as LocalCluster,
)
from partwise.blocks import (
    RemoteCluster as RemoteCluster,
)
from partwise.blocks import (
    SqlSource as SqlSource,
)
from partwise.blocks import (
    SqlTable as SqlTable,
)
from partwise.connector.context import (
    PartitionContext as PartitionContext,
)
from partwise.connector.data_connector import (
    DataConnector as DataConnector,
)
from partwise.datasets.dataset import (
    Dataset as Dataset,
)
from partwise.datasets.dataset import (
    list_datasets as list_datasets,
)
from partwise.datasets.registration import (
    register_dataset as register_dataset,
)
from partwise.engine.options import (
    ExecutionOptions as ExecutionOptions,
)
from partwise.errors import (
    ArtifactNotFoundError as ArtifactNotFoundError,
)
from partwise.errors import (
    CheckpointError as CheckpointError,
)
from partwise.errors import (
    ClusterError as ClusterError,
)
from partwise.errors import (
    ColumnError as ColumnError,
)
from partwise.errors import (
    DatasetNotFoundError as DatasetNotFoundError,
)
from partwise.errors import (
    ExportMismatch as ExportMismatch,
)
from partwise.errors import (
    ExportRefused as ExportRefused,
)
from partwise.errors import (
    FunctionError as FunctionError,
)
from partwise.errors import (
    InputError as InputError,
)
from partwise.errors import (
    IntegrityError as IntegrityError,
)
from partwise.errors import (
    KeyClassError as KeyClassError,
)
from partwise.errors import (
    ModelNotFound as ModelNotFound,
)
from partwise.errors import (
    NullKeyError as NullKeyError,
)
from partwise.errors import (
    OpsetError as OpsetError,
)
from partwise.errors import (
    OutputError as OutputError,
)
from partwise.errors import (
    PartitionNotFoundError as PartitionNotFoundError,
)
from partwise.errors import (
    PartwiseError as PartwiseError,
)
from partwise.errors import (
    RunBusyError as RunBusyError,
)
from partwise.errors import (
    RunCancelled as RunCancelled,
)
from partwise.errors import (
    RunExistsError as RunExistsError,
)
from partwise.errors import (
    RunFailed as RunFailed,
)
from partwise.errors import (
    RunFormatError as RunFormatError,
)
from partwise.errors import (
    RunIdError as RunIdError,
)
from partwise.errors import (
    RunNotFoundError as RunNotFoundError,
)
from partwise.errors import (
    SerdeError as SerdeError,
)
from partwise.errors import (
    ServiceError as ServiceError,
)
from partwise.errors import (
    SourceError as SourceError,
)
from partwise.errors import (
    StoreError as StoreError,
)
from partwise.errors import (
    UnknownFeatureError as UnknownFeatureError,
)
from partwise.errors import (
    UnknownModelTypeError as UnknownModelTypeError,
)
from partwise.exports.protocol import (
    Exporter as Exporter,
)
from partwise.exports.protocol import (
    ModelDescription as ModelDescription,
)
from partwise.flows import (
    export_models as export_models,
)
from partwise.flows import (
    export_transformers as export_transformers,
)
from partwise.flows import (
    map_partitions as map_partitions,
)
from partwise.flows import (
    model_pipeline as model_pipeline,
)
from partwise.flows import (
    run_inference as run_inference,
)
from partwise.flows import (
    train_models as train_models,
)
from partwise.flows import (
    validate_exports as validate_exports,
)
from partwise.models.export_options import (
    ExportOptions as ExportOptions,
)
from partwise.models.export_options import (
    ValidationOptions as ValidationOptions,
)
from partwise.models.onnx_model import (
    OnnxModel as OnnxModel,
)
from partwise.models.serdes import (
    KerasSerde as KerasSerde,
)
from partwise.models.serdes import (
    LightGBMSerde as LightGBMSerde,
)
from partwise.models.serdes import (
    ModelSerde as ModelSerde,
)
from partwise.models.serdes import (
    NeuronSerde as NeuronSerde,
)
from partwise.models.serdes import (
    OnnxSerde as OnnxSerde,
)
from partwise.models.serdes import (
    PickleSerde as PickleSerde,
)
from partwise.models.serdes import (
    Pt2Serde as Pt2Serde,
)
from partwise.models.serdes import (
    TorchScriptSerde as TorchScriptSerde,
)
from partwise.models.serdes import (
    TorchSerde as TorchSerde,
)
from partwise.models.serdes import (
    XGBoostSerde as XGBoostSerde,
)
from partwise.outcomes import (
    PartitionStatus as PartitionStatus,
)
from partwise.outcomes import (
    Result as Result,
)
from partwise.outcomes import (
    RunStatus as RunStatus,
)
from partwise.outcomes import (
    Skip as Skip,
)
from partwise.publishing.dataset_output import (
    DatasetOutput as DatasetOutput,
)
from partwise.publishing.sql_output import (
    Table as Table,
)
from partwise.reports.report import (
    write_report as write_report,
)
from partwise.runs.layout import (
    lay_out as lay_out,
)
from partwise.runs.listing import (
    list_runs as list_runs,
)
from partwise.runs.pipeline import (
    Pipeline as Pipeline,
)
from partwise.runs.run import (
    Run as Run,
)
from partwise.sources.files.file_set import (
    Files as Files,
)
from partwise.sources.sql.query import (
    Query as Query,
)
from partwise.store.store import (
    Store as Store,
)
from partwise.trainers import (
    Holdout as Holdout,
)
from partwise.trainers import (
    HoldoutByTime as HoldoutByTime,
)
from partwise.trainers import (
    HoldoutFraction as HoldoutFraction,
)
from partwise.trainers import (
    LightGBMTrainer as LightGBMTrainer,
)
from partwise.trainers import (
    Trainer as Trainer,
)
from partwise.trainers import (
    XGBoostTrainer as XGBoostTrainer,
)
from partwise.trainers import (
    default_predict as default_predict,
)
from partwise.transformers.collection import (
    TransformersExport as TransformersExport,
)
from partwise.transformers.options import (
    TransformersOptions as TransformersOptions,
)

__all__ = [
    "export_models",
    "export_transformers",
    "map_partitions",
    "model_pipeline",
    "run_inference",
    "train_models",
    "validate_exports",
    "PartitionStatus",
    "Result",
    "RunStatus",
    "Skip",
    "PartitionContext",
    "DataConnector",
    "Holdout",
    "HoldoutByTime",
    "HoldoutFraction",
    "LightGBMTrainer",
    "Trainer",
    "XGBoostTrainer",
    "default_predict",
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
    "ExecutionOptions",
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
    "PartitionNotFoundError",
    "ArtifactNotFoundError",
    "ModelNotFound",
    "ExportRefused",
    "ExportMismatch",
    "IntegrityError",
    "ClusterError",
    "OutputError",
    "ServiceError",
    "RunFailed",
    "RunCancelled",
]
