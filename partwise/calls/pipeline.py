"""The call of four runs, from rows to proved exports and their predictions."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from partwise.calls.call import WHERE, CallKind, KeyedCall, Role
from partwise.calls.exports import ExportCall, ValidateCall
from partwise.calls.partitions import InferCall, TrainCall
from partwise.choices import OnExistingWhole
from partwise.models.export_options import ExportOptions, ModelFormat, ValidationOptions

if TYPE_CHECKING:
    from partwise.calls.parameters import (
        ColumnsParameter,
        DataParameter,
        ExampleInputsParameter,
        ExporterParameter,
        FilesParameter,
        FilterParameter,
        PredictParameter,
        SerdeParameter,
        TrainerParameter,
    )
    from partwise.runs.pipeline import Stage


@dataclass(frozen=True)
class PipelineCall(KeyedCall):
    """A call of `model_pipeline`; of its arguments calls of the stages are made."""

    kind: ClassVar[CallKind] = "pipeline"

    trainer: TrainerParameter
    """What trains: a trainer with its settings, or "package.module:function": a function of (data:
    DataConnector, context: PartitionContext). From Python also the function itself."""
    _: KW_ONLY
    run_id: str = field(default="", metadata=WHERE)
    """A name for the pipeline, of which the names of its four runs are made: letters, digits, "-"
    and "_". Empty: a name is made up.

    {scheduled:%Y-%m-%d} in it stands for the time at which the flow run was due,
    {scheduled[Europe/Amsterdam]:%Y-%m-%d} for that of a time zone."""
    filter: FilterParameter = field(default=(), metadata=WHERE)
    """Rows to train on: (column, op, value) tuples that must all hold, or lists of them."""
    format: ModelFormat = "onnx"
    """What models are exported to: "onnx", "torchscript", "pt2", "native" or "neuron"."""
    example_inputs: ExampleInputsParameter = ""
    """For PyTorch modules: what makes their inputs of rows; see export_models."""
    exporter: ExporterParameter = ""
    """What writes models of your own kind; see export_models."""
    options: ExportOptions = field(default_factory=ExportOptions)
    """Opset, layout of the inputs, precision, optimization of the exports."""
    validation: ValidationOptions = field(default_factory=ValidationOptions)
    """Tolerances, how many rows."""
    inference_data: DataParameter = field(default="", metadata=Role(is_data=True).metadata)
    """The rows to infer with the exports. Empty: those trained on."""
    predict: PredictParameter = ""
    """"package.module:function": a function of (data: DataConnector, model, context:
    PartitionContext); the model is the export. Empty: the model's own prediction. From Python also
    the function itself."""
    keep_columns: ColumnsParameter = ()
    """Columns of the rows to keep beside the predictions, such as a date."""
    on_missing_model: Literal["skip", "previous-or-skip"] = field(
        default="skip", metadata=Role(decides=False, is_newer=True).metadata
    )
    """What becomes of a partition to infer without an export: "skip", or "previous-or-skip"
    as run_inference has it: by the export that its key had in the pipeline before."""
    serde: SerdeParameter = ""
    """How models are written: the name of a built-in serde. Empty: the native one of the model's
    type. From Python also a serde."""
    files: FilesParameter = ()
    """Files that `trainer` or `predict` reads besides its rows: paths, folders, globs or URLs. A
    resume trains and infers again when the checksum of one has changed."""
    on_existing_artifacts: OnExistingWhole = field(default="error", metadata=WHERE)
    """When runs of these names exist: "error", "overwrite" or "resume"."""

    @property
    def infers_other_rows(self) -> bool:
        """Whether the rows to infer with the exports are not those trained on."""
        return not isinstance(self.inference_data, str) or bool(self.inference_data)

    def training(self) -> TrainCall:
        """Return the call of the first stage."""
        return TrainCall(
            self.data,
            self.partition_by,
            self.trainer,
            filter=self.filter,
            columns=self.columns,
            params=self.params,
            null_keys=self.null_keys,
            seed=self.seed,
            files=self.files,
            **self._of_stage("train"),
        )

    def exporting(self, training_run_id: str) -> ExportCall:
        """Return the call that exports the models of the first stage."""
        return ExportCall(
            training_run_id,
            self.format,
            options=self.options,
            **self._compared(),
            **self._of_stage("export"),
        )

    def validating(self, export_run_id: str) -> ValidateCall:
        """Return the call that proves the exports."""
        return ValidateCall(
            export_run_id,
            format=self.format,
            **self._compared(),
            **self._of_stage("validate"),
        )

    def inferring(self, export_run_id: str) -> InferCall:
        """Return the call that infers with the exports."""
        others = self.infers_other_rows
        return InferCall(
            self.inference_data if others else self.data,
            self.partition_by,
            export_run_id,
            self.predict,
            # It says which rows are trained on; of rows for inference alone it says nothing.
            filter=() if others else self.filter,
            format=self.format,
            keep_columns=self.keep_columns,
            null_keys=self.null_keys,
            files=self.files,
            on_missing_model=self.on_missing_model,
            **self._of_stage("infer"),
        )

    def _compared(self) -> dict[str, Any]:
        return {
            "data": self.data,
            "filter": self.filter,
            "example_inputs": self.example_inputs,
            "exporter": self.exporter,
            "validation": self.validation,
        }

    def _of_stage(self, stage: Stage) -> dict[str, Any]:
        from partwise.runs.pipeline import stage_run_id

        return {
            "run_id": stage_run_id(self.run_id, stage),
            "store": self.store,
            "serde": self.serde,
            "version": self.version,
            "on_existing_artifacts": self.on_existing_artifacts,
            "execution": self.execution,
            "cluster": self.cluster,
        }
