"""What a child process does with a partition to export its model, or to prove an export again."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from partwise.choices import Task
from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.connector.trained_rows import with_trained_categories
from partwise.engine.outcome import Produced, WrittenModel
from partwise.engine.works import StoredModel
from partwise.errors import ColumnError, ExportMismatchError, ExportRefusedError, InputError
from partwise.exports.choice import exporter_for
from partwise.exports.onnx.quantization import as_float16
from partwise.exports.proof.cases import HELD_OUT, make_cases
from partwise.exports.proof.guarding import judge_and_guard
from partwise.exports.proof.judge import judge
from partwise.exports.proof.verdict import Expectation, MetricGate, Verdict
from partwise.exports.proof.weights import prove_weights
from partwise.exports.protocol import Exporter, ModelDescription
from partwise.models.export_options import ExportOptions, ModelFormat, ValidationOptions, format_of
from partwise.models.serdes import (
    SERDES,
    ModelSerde,
    library_of,
    refuse_program,
    serde_by_name,
)
from partwise.models.signature import (
    SIGNATURE_FILE,
    Feeds,
    Origin,
    Outputs,
    Signature,
    feeds_of_rows,
)
from partwise.outcomes import PartitionStatus
from partwise.runs.bundle import EXTERNAL_DATA_SUFFIX, read_model
from partwise.tables.classes import classes_among
from partwise.trainers import HoldoutTrainer

Inputs = Callable[[DataConnector, Any, PartitionContext], Feeds]
"""What makes a model's inputs of rows: a function of (data, model, context)."""

CLASSES_FILE = "classes.json"
"""The artifact with the label's classes, in the order of the outputs, for those who serve a file
without partwise."""
CAPTURE_ROWS = 4
"""Rows that a graph is captured with: more than one, which would be taken for a fixed size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRows:
    """Which rows of a partition a model and its export are compared on."""

    trainer: HoldoutTrainer | None
    """Says which rows training held out. None: nothing does, and all rows are taken."""
    most: int
    """More are left out evenly."""

    def take(self, rows: pa.Table, seed: int) -> tuple[pa.Table, np.ndarray | None]:
        """Return rows, and their labels as doubles where they are known."""
        labels = None
        if self.trainer is not None:
            try:
                rows, labels = self.trainer.held_out(rows, seed)
            except ColumnError:
                # The rows given for the export are others than those of the training.
                labels = None
        if rows.num_rows > self.most:
            places = np.linspace(0, rows.num_rows - 1, self.most).astype(np.int64)
            rows = rows.take(pa.array(places))
            labels = None if labels is None else labels[places]
        return rows, labels

    @property
    def task(self) -> Task:
        """What the labels are."""
        return "regression" if self.trainer is None else self.trainer.task


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A trained model, and what an export of it has to be."""

    model: Any
    exporter: Exporter
    format: ModelFormat
    description: ModelDescription

    @property
    def signature(self) -> Signature:
        """What the export takes and gives."""
        return self.description.signature


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """How models are described, and compared with their exports."""

    validation: ValidationOptions
    rows: ComparedRows
    inputs: Inputs | None
    exporter: Exporter | None
    """The user's own; None: the built-in one."""

    def describe(
        self,
        model: Any,
        form: ModelFormat,
        options: ExportOptions,
        origin: Origin,
        data: DataConnector,
        context: PartitionContext,
    ) -> Subject:
        """Return a model with what its export has to be.

        Raises:
            ExportRefusedError: The model cannot be exported rightly in this format.
        """
        exporter = self.exporter or exporter_for(form, model)
        is_booster = self.exporter is None and library_of(model) in ("lightgbm", "xgboost")
        if options.features is not None and (self.inputs is not None or not is_booster):
            raise ExportRefusedError(
                "features= names the columns of Boosters of LightGBM and XGBoost that have no "
                "names, where no example_inputs= makes their matrix: leave it out. A module has "
                "the attribute feature_names_in_ for it."
            )
        rows = data.to_arrow()
        feeds = None
        if self.inputs is not None:
            feeds = _made(self.inputs, rows.slice(0, CAPTURE_ROWS), model, context)
        described = exporter.describe(model, rows, feeds, options)
        signature = described.signature.model_copy(update={"origin": origin, "options": options})
        described = replace(described, signature=signature)
        return Subject(model=model, exporter=exporter, format=form, description=described)

    def feeds(self, rows: pa.Table, subject: Subject, context: PartitionContext) -> Feeds:
        """Return rows as inputs of a model."""
        if self.inputs is not None:
            return _made(self.inputs, rows, subject.model, context)
        return feeds_of_rows(subject.signature, rows)

    def compare(
        self,
        path: str,
        subject: Subject,
        data: DataConnector,
        context: PartitionContext,
        *,
        is_new: bool = False,
    ) -> Mapping[str, float]:
        """Compare the file of an export with its model, and return the numbers of it.

        A new file gets guards where it differs on inputs that were made to go wrong only.

        Raises:
            ExportMismatchError: It does not give what the model gives.
        """
        signature, description = subject.signature, subject.description
        rows, labels = self.rows.take(data.to_arrow(), context.seed)
        real = self.feeds(rows, subject, context)

        def predict(feeds: Feeds) -> Outputs:
            return subject.exporter.predict(subject.model, signature, feeds)

        made = make_cases(description, real, predict)
        given, options = self.validation, signature.options
        expectation = Expectation(
            format=subject.format,
            signature=signature,
            tolerance=description.tolerance.given(given.atol, given.rtol),
            opset=description.opset,
            is_constant=description.is_constant,
            trees=description.trees if subject.format == "onnx" else None,
            timeout_s=given.judge_timeout_s,
            serde="" if signature.origin is None else signature.origin.model_serde,
            gate=None
            if options is None or options.precision == "full"
            else MetricGate(
                case=HELD_OUT, labels=labels, task=self.rows.task, max_loss=given.max_metric_loss
            ),
        )
        verdict = (judge_and_guard if is_new else judge)(path, expectation, made.cases)
        verdict = _with_weights(verdict, path, subject)
        for note in (*made.notes, *verdict.notes):
            context.logger.info("%s", note)
        for finding in verdict.findings:
            context.logger.error("%s: %s", finding.check, finding.message)
        verdict.check()
        return {**verdict.metrics, **made.metrics}


def _with_weights(verdict: Verdict, path: str, subject: Subject) -> Verdict:
    """Add what is found of an ONNX file's weights to a verdict, where the exporter knows them."""
    options, weights = subject.signature.options, getattr(subject.exporter, "weights", None)
    precision = "full" if options is None else options.precision
    # int8 keeps of a weight what its scale leaves: the metric that it is judged by is of all.
    known = subject.description.constants if weights is None else weights(subject.model)
    if not known or subject.format != "onnx" or precision == "int8":
        return verdict
    cast = as_float16 if precision == "float16" else None
    return prove_weights(path, known, cast).added_to(verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportWork:
    """Export a partition's model, prove the file, and keep it if it is right."""

    format: ModelFormat
    options: ExportOptions
    proof: Proof
    serde: ModelSerde | None
    """Reads models that no native serde wrote."""
    training_run_id: str

    def __call__(
        self,
        data: DataConnector,
        context: PartitionContext,
        models: Sequence[StoredModel],
        directory: str,
    ) -> Produced:
        """Export one partition.

        Raises:
            ExportRefusedError: The model cannot be exported rightly in this format.
            ExportMismatchError: The file does not give what the model gives.
        """
        if not models:
            reason = f"The training run {self.training_run_id!r} has no model for this partition."
            return Produced(status=PartitionStatus.SKIPPED, reason=reason)
        (model,) = models
        proof, artifact = self.proof, model.artifact
        trained = model.read(serde_by_name(artifact.serde, self.serde))
        origin = Origin(
            training_run_id=model.run_id,
            partition_id=context.partition_id,
            model_file=artifact.filename,
            model_serde=artifact.serde,
            model_sha256=artifact.sha256,
        )
        categories = model.trained_categories()
        data = with_trained_categories(data, categories)
        subject = proof.describe(trained, self.format, self.options, origin, data, context)
        serde = artifact.serde if self.format == "native" else self.format
        # A folder of its own, so that nothing of a file that is refused stays.
        with TemporaryDirectory(dir=directory) as folder:
            file = Path(folder, SERDES[serde]().filename)
            rows = data.to_arrow()
            # Repeated where the partition has fewer: a graph captured on one row would hold for one
            # only.
            few = rows.take(pa.array(np.arange(CAPTURE_ROWS) % rows.num_rows))
            sample = proof.feeds(few, subject, context)
            subject.exporter.write(trained, subject.description, sample, self.options, str(file))
            metrics = proof.compare(str(file), subject, data, context, is_new=True)
            # After the proof: of a file that is refused nothing is published, its signature
            # neither.
            context.upload(subject.signature.to_json().encode(), SIGNATURE_FILE)
            if categories is not None and (named := classes_among(categories)) is not None:
                label, classes = named
                written = {"label": label, "classes": classes.to_pylist()}
                context.upload(json.dumps(written).encode(), CLASSES_FILE)
            external = file.with_name(file.name + EXTERNAL_DATA_SUFFIX)
            if external.exists():
                context.upload(external.read_bytes(), external.name)
            proved = file.rename(Path(directory, file.name))
        size_bytes = float(proved.stat().st_size)
        return Produced(
            status=PartitionStatus.DONE,
            metrics={**metrics, "export_bytes": size_bytes},
            model=WrittenModel(filename=proved.name, content=str(proved), serde=serde),
            files=model.files(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateWork:
    """Prove a published export again: from the store, on the rows given, with today's runtime."""

    proof: Proof
    serde: ModelSerde | None
    export_run_id: str
    format: str = ""
    """The format of the exports, where the caller named it: programs are read only then."""

    def __call__(
        self,
        data: DataConnector,
        context: PartitionContext,
        models: Sequence[StoredModel],
        directory: str,  # noqa: ARG002 (the protocol)
    ) -> Produced:
        """Validate one partition.

        Raises:
            ExportMismatchError: The file does not give what the model gives, or the training run
                has another model now.
        """
        if not models:
            reason = f"The export run {self.export_run_id!r} has no file for this partition."
            return Produced(status=PartitionStatus.SKIPPED, reason=reason)
        (model,) = models
        # As before any work, on the driver: this process trusts no table that reached it.
        refuse_program(model.artifact.serde, self.format)
        signature = context.download(SIGNATURE_FILE, read=_signature, run_id=self.export_run_id)
        origin = signature.origin
        content = context.download(origin.model_file, read=_content, run_id=origin.training_run_id)
        # Before it is read: what would be compared is another model than the one exported.
        if hashlib.sha256(content).hexdigest() != origin.model_sha256:
            raise ExportMismatchError(
                f"The training run {origin.training_run_id!r} has another model now than the one "
                "that was exported: export it again.",
                "signature",
                {},
            )
        serde = serde_by_name(origin.model_serde, self.serde)
        trained = read_model(serde, content, origin.model_file)
        form = format_of(model.artifact.serde)
        data = with_trained_categories(data, model.trained_categories())
        # What the file says of itself is compared with what the model says now.
        subject = self.proof.describe(trained, form, signature.options, origin, data, context)
        with model.as_file() as path:
            metrics = self.proof.compare(path, subject, data, context)
        return Produced(status=PartitionStatus.DONE, metrics=metrics)


def _made(inputs: Inputs, rows: pa.Table, model: Any, context: PartitionContext) -> Feeds:
    """Return what the user's function makes of rows."""
    made: Any = inputs(DataConnector(rows), model, context)
    is_named = isinstance(made, Mapping) and all(isinstance(name, str) for name in made)
    if not is_named or not made or not all(isinstance(v, np.ndarray) for v in made.values()):
        raise InputError(
            f"example_inputs= returned a {type(made).__name__}: return a mapping of the "
            'model\'s input names to numpy arrays, such as {"input": matrix}.'
        )
    # Libraries take the bytes of an array as they are, and of this machine's order.
    return {name: np.asarray(each, each.dtype.newbyteorder("=")) for name, each in made.items()}


def _signature(path: str) -> Signature:
    return Signature.model_validate_json(Path(path).read_bytes())


def _content(path: str) -> bytes:
    return Path(path).read_bytes()
