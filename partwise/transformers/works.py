"""What a child process does with a partition that is a model of transformers: export it."""

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.engine.outcome import Produced, WrittenModel
from partwise.engine.works import StoredModel
from partwise.models.serdes import SERDES
from partwise.outcomes import PartitionStatus
from partwise.transformers.checkpoint_export import export_checkpoint
from partwise.transformers.export import TransformersMismatchError
from partwise.transformers.options import TransformersOptions
from partwise.transformers.report import ExportReport

REPORT_FILE = "export.json"
"""The artifact with what was compared, file by file and output by output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformersWork:
    """Export the model that a partition's one row names, and keep the files that are right."""

    def __call__(
        self,
        data: DataConnector,
        context: PartitionContext,
        models: Sequence[StoredModel],  # noqa: ARG002 (the protocol)
        directory: str,
    ) -> Produced:
        """Export one model."""
        row = data.to_arrow().to_pylist()[0]
        options = TransformersOptions.model_validate_json(row["options"])
        with TemporaryDirectory(dir=directory) as folder:
            try:
                report = export_checkpoint(row["model"], row["feature"], Path(folder), options)
            except TransformersMismatchError as error:
                _keep_report(error.report, context)
                raise
            finally:
                # Its modules refer to one another; the next model should not find it here.
                gc.collect()
            _keep_report(report, context)
            proved = Path(folder, SERDES[options.format]().filename)
            for file in sorted(Path(folder).rglob("*")):
                if file.is_file() and file != proved:
                    # Artifacts have flat names.
                    name = "-".join(file.relative_to(folder).parts)
                    context.upload(file.read_bytes(), name)
            kept = proved.rename(Path(directory, proved.name))
        return Produced(
            status=PartitionStatus.DONE,
            metrics=_metrics(report),
            model=WrittenModel(filename=kept.name, content=str(kept), serde=options.format),
        )


def _keep_report(report: ExportReport, context: PartitionContext) -> None:
    """Keep a report as an artifact, and what it says of files in the log."""
    for file in report.files:
        for note in file.notes:
            context.logger.info("%s: %s", file.name, note)
        for output in file.outputs:
            for finding in output.findings:
                context.logger.error("%s: %s: %s", file.name, output.name, finding)
        for finding in file.findings:
            context.logger.error("%s: %s", file.name, finding)
    context.upload(report.model_dump_json(indent=1).encode(), REPORT_FILE)


def _metrics(report: ExportReport) -> dict[str, float]:
    """Return the numbers of an export for the ledger; of several files, the largest."""
    metrics = {
        "export_seconds": report.seconds,
        "export_bytes": float(sum(file.bytes for file in report.files)),
    }
    if report.opset is not None:
        metrics["export_opset"] = float(report.opset)
    for file in report.files:
        for name, value in file.metrics.items():
            metrics[name] = max(value, metrics.get(name, value))
    return metrics
